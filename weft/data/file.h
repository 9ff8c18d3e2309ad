// A file of data, plain or gzipped, read from its beginning; what is wrong with it is said with its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

struct gzFile_s;  // zlib's

namespace weft::data {

// Data that is absent, or not what it should be. Not the program's mistake: another folder or file may do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A path as errors show it.
[[nodiscard]] std::string quoted(const std::filesystem::path& path);

// The file itself, or where only that exists, the one with .gz behind its name.
[[nodiscard]] std::filesystem::path plain_or_gzipped(const std::filesystem::path& path);

class InputFile {
 public:
  // Looks for the name with .gz behind it too. Throws DataError where there is no file to read.
  explicit InputFile(const std::filesystem::path& path);

  // Of the content. For a gzipped file that means unpacking it once, at the first call and before anything was read.
  [[nodiscard]] std::int64_t size();
  // The next bytes; throws DataError where the file ends before them or does not unpack.
  void read(void* into, std::int64_t bytes);
  // Throws DataError: what the file should be, and what it is.
  [[noreturn]] void reject(const std::string& expected, const std::string& got) const;

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  std::int64_t read_some(void* into, std::int64_t bytes);
  std::int64_t count_unpacked();

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> stream_;
  std::optional<std::int64_t> size_;
};

}  // namespace weft::data
