// A file of data, read from its beginning; what is wrong with it is said with its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace weft::data {

// Data that is absent, or not what it should be. Not the program's mistake: another folder or file may do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A path as errors show it.
[[nodiscard]] std::string quoted(const std::filesystem::path& path);

class InputFile {
 public:
  // Throws DataError where there is no file to read, and for gzipped ones, which only Python reads.
  explicit InputFile(std::filesystem::path path);

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  // The next bytes; throws DataError where the file ends before them.
  void read(void* into, std::int64_t bytes);
  // Throws DataError: what the file should be, and what it is.
  [[noreturn]] void reject(const std::string& expected, const std::string& got) const;

 private:
  void refuse_gzip();

  std::filesystem::path path_;
  std::ifstream stream_;
  std::int64_t size_ = 0;
};

}  // namespace weft::data
