#include "weft/data/file.h"

#include <zlib.h>

#include <algorithm>
#include <system_error>
#include <vector>

namespace weft::data {
namespace {

constexpr std::int64_t kMostAtOnce = std::int64_t{1} << 30;  // zlib counts in unsigned int
constexpr unsigned kBuffer = 1U << 18;

std::string why_absent(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return "something that is no file, such as a folder";
  return "nothing of that name, nor with .gz behind it";
}

}  // namespace

std::string quoted(const std::filesystem::path& path) { return std::string("'").append(path.string()).append("'"); }

std::filesystem::path plain_or_gzipped(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::path gzipped = path;
  gzipped += ".gz";
  const bool only_gzipped = !std::filesystem::exists(path, ignored) && std::filesystem::exists(gzipped, ignored);
  return only_gzipped ? gzipped : path;
}

void InputFile::Close::operator()(gzFile_s* file) const { gzclose_r(file); }

InputFile::InputFile(const std::filesystem::path& path) : path_(plain_or_gzipped(path)) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path_, ignored)) reject("a file", why_absent(path_));
  stream_.reset(gzopen(path_.c_str(), "rbe"));
  if (!stream_) reject("a file that this process may read", "one that does not open");
  gzbuffer(stream_.get(), kBuffer);
}

std::int64_t InputFile::size() {
  if (!size_) {
    // zlib tells only after it has looked whether the bytes are packed.
    size_ =
        gzdirect(stream_.get()) != 0 ? static_cast<std::int64_t>(std::filesystem::file_size(path_)) : count_unpacked();
  }
  return *size_;
}

void InputFile::read(void* into, std::int64_t bytes) {
  auto* next = static_cast<char*>(into);
  while (bytes > 0) {
    const std::int64_t got = read_some(next, bytes);
    if (got == 0) reject("a whole file", "an end " + std::to_string(bytes) + " bytes too early");
    next += got;
    bytes -= got;
  }
}

void InputFile::reject(const std::string& expected, const std::string& got) const {
  throw DataError("weft: expected " + quoted(path_) + " to be " + expected + ", got " + got);
}

std::int64_t InputFile::read_some(void* into, std::int64_t bytes) {
  const int got = gzread(stream_.get(), into, static_cast<unsigned>(std::min(bytes, kMostAtOnce)));
  int status = Z_OK;
  const char* message = gzerror(stream_.get(), &status);
  if (got < 0 || (got == 0 && status != Z_OK)) {
    reject("a whole file", std::string("one that does not unpack: ") + message);
  }
  return got;
}

std::int64_t InputFile::count_unpacked() {
  std::vector<char> discarded(kBuffer);
  std::int64_t total = 0;
  while (const std::int64_t got = read_some(discarded.data(), kBuffer)) total += got;
  gzrewind(stream_.get());
  return total;
}

}  // namespace weft::data
