#include "weft/files/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "weft/files/error.h"

namespace weft::files {
namespace {

namespace fs = std::filesystem;

// Linux transfers at most 2 GiB per call of write().
constexpr std::int64_t kMaxWrite = std::int64_t{1} << 30;

// Returns a name that is unique per thread and process, so that concurrent writers of one path do not interfere.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> number{0};
  return path.string() + "." + std::to_string(getpid()) + "." + std::to_string(number++) + ".partial";
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

void sync_folder(const fs::path& folder) {
  const FileDescriptor descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) return;  // a folder without read permission; the file is already in place
  fsync(descriptor.get());
}

// `step(pointer, count)` writes up to `count` bytes and returns the number written.
template <typename Step>
void write_all(const void* data, std::int64_t bytes, const fs::path& path, Step step) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = step(next, std::min(bytes, kMaxWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno("write", path);
    next += written;
    bytes -= written;
  }
}

}  // namespace

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), temporary_(temporary_name(path_)) {
  std::error_code ignored;  // open() reports problems with the folder
  fs::create_directories(folder_of(path_), ignored);
  descriptor_ = FileDescriptor(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (descriptor_.get() < 0) throw_errno("create", temporary_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_.get() >= 0) unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::int64_t bytes) {
  write_all(data, bytes, temporary_,
            [&](const char* next, std::int64_t count) { return ::write(descriptor_.get(), next, count); });
}

void AtomicFile::write_at(std::int64_t offset, const void* data, std::int64_t bytes) {
  write_all(data, bytes, temporary_, [&](const char* next, std::int64_t count) {
    return pwrite(descriptor_.get(), next, count, offset + (next - static_cast<const char*>(data)));
  });
}

void AtomicFile::commit() {
  if (fsync(descriptor_.get()) != 0) throw_errno("flush", temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) throw_errno("replace", path_);
  descriptor_ = FileDescriptor();
  sync_folder(folder_of(path_));
}

void write_atomically(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace weft::files
