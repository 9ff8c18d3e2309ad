#include "weft/data/file.h"

#include <array>
#include <system_error>
#include <utility>

namespace weft::data {
namespace {

std::string why_absent(const std::filesystem::path& path) {
  std::error_code ignored;
  auto gzipped = path;
  gzipped += ".gz";
  if (std::filesystem::exists(gzipped, ignored)) {
    return "there is none, but " + quoted(gzipped) + ": unpack it with gunzip -k, or read it from Python";
  }
  if (std::filesystem::exists(path, ignored)) return "something that is no file, such as a folder";
  return "nothing of that name";
}

}  // namespace

std::string quoted(const std::filesystem::path& path) { return std::string("'").append(path.string()).append("'"); }

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path_, ignored)) reject("a file", why_absent(path_));
  stream_.open(path_, std::ios::binary);
  if (!stream_) reject("a file that this process may read", "one that does not open");
  size_ = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  refuse_gzip();
}

void InputFile::read(void* into, std::int64_t bytes) {
  stream_.read(static_cast<char*>(into), bytes);
  if (stream_.gcount() != bytes) {
    reject("a whole file", "an end " + std::to_string(bytes - stream_.gcount()) + " bytes too early");
  }
}

void InputFile::reject(const std::string& expected, const std::string& got) const {
  throw DataError("weft: expected " + quoted(path_) + " to be " + expected + ", got " + got);
}

void InputFile::refuse_gzip() {
  std::array<unsigned char, 2> begin{};
  stream_.read(reinterpret_cast<char*>(begin.data()), begin.size());
  if (stream_.gcount() == 2 && begin[0] == 0x1F && begin[1] == 0x8B) {
    reject("plain", "gzipped data: unpack it with gunzip, or read it from Python");
  }
  stream_.clear();
  stream_.seekg(0);
}

}  // namespace weft::data
