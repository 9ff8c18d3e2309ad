// Sequential reading of a data file, plain or gzipped, with errors that name the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

struct gzFile_s;  // zlib's type behind gzFile

namespace weft::data {

// Thrown if data is missing or invalid.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown if data files do not exist.
class MissingDataError : public DataError {
 public:
  using DataError::DataError;
};

// Formats a path for error messages.
[[nodiscard]] std::string quoted(const std::filesystem::path& path);

// Returns `path`, or `path`.gz if only that file exists.
[[nodiscard]] std::filesystem::path plain_or_gzipped(const std::filesystem::path& path);

class InputFile {
 public:
  // Opens `path`, or `path`.gz if only that file exists. Throws MissingDataError if neither exists, DataError if the
  // file cannot be read.
  explicit InputFile(const std::filesystem::path& path);

  // The size of the decompressed content. The first call decompresses a gzipped file; call it before read().
  [[nodiscard]] std::int64_t size();
  // Reads the next `bytes` bytes. Throws DataError if the file is too short or cannot be decompressed.
  void read(void* into, std::int64_t bytes);
  // Throws DataError "weft: '<path>': <problem>".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  std::int64_t read_some(void* into, std::int64_t bytes);
  std::int64_t decompressed_size();

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> stream_;
  std::optional<std::int64_t> size_;
};

}  // namespace weft::data
