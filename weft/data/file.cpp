#include "weft/data/file.h"

#include <zlib.h>

#include <algorithm>
#include <system_error>
#include <vector>

namespace weft::data {
namespace {

constexpr std::int64_t kMaxRead = std::int64_t{1} << 30;  // zlib counts in unsigned int
constexpr unsigned kBuffer = 1U << 18;

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
  if (!std::filesystem::exists(path_, ignored)) {
    throw MissingDataError("weft: neither " + quoted(path_) + " nor a file with the suffix .gz exists");
  }
  if (!std::filesystem::is_regular_file(path_, ignored)) fail("not a regular file");
  stream_.reset(gzopen(path_.c_str(), "rbe"));
  if (!stream_) fail("cannot open the file; check its permissions");
  gzbuffer(stream_.get(), kBuffer);
}

std::int64_t InputFile::size() {
  if (!size_) {
    // gzdirect() inspects the first bytes to determine whether the file is compressed.
    size_ = gzdirect(stream_.get()) != 0 ? static_cast<std::int64_t>(std::filesystem::file_size(path_))
                                         : decompressed_size();
  }
  return *size_;
}

void InputFile::read(void* into, std::int64_t bytes) {
  auto* next = static_cast<char*>(into);
  while (bytes > 0) {
    const std::int64_t got = read_some(next, bytes);
    if (got == 0) fail("unexpected end of file, " + std::to_string(bytes) + " bytes missing");
    next += got;
    bytes -= got;
  }
}

void InputFile::fail(const std::string& problem) const { throw DataError("weft: " + quoted(path_) + ": " + problem); }

std::int64_t InputFile::read_some(void* into, std::int64_t bytes) {
  const int got = gzread(stream_.get(), into, static_cast<unsigned>(std::min(bytes, kMaxRead)));
  int status = Z_OK;
  const char* message = gzerror(stream_.get(), &status);
  if (got < 0 || (got == 0 && status != Z_OK)) fail(std::string("cannot decompress: ") + message);
  return got;
}

std::int64_t InputFile::decompressed_size() {
  std::vector<char> discarded(kBuffer);
  std::int64_t total = 0;
  while (const std::int64_t got = read_some(discarded.data(), kBuffer)) total += got;
  gzrewind(stream_.get());
  return total;
}

}  // namespace weft::data
