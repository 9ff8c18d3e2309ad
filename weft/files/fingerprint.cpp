#include "weft/files/fingerprint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "weft/files/checksum.h"
#include "weft/files/error.h"
#include "weft/files/file_descriptor.h"

namespace weft::files {
namespace {

namespace fs = std::filesystem;

// File times have a resolution of up to two seconds (FAT), and clocks differ across a network.
constexpr std::int64_t kSettledAfterNs = 3'000'000'000;
constexpr std::size_t kChunk = std::size_t{1} << 20;

std::int64_t nanoseconds(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return nanoseconds(time);
}

bool read_status(const fs::path& path, Fingerprint& into) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return false;
  into.size = status.st_size;
  into.modified_ns = nanoseconds(status.st_mtim);
  into.changed_ns = nanoseconds(status.st_ctim);
  into.device = status.st_dev;
  into.inode = status.st_ino;
  into.settled = now_ns() - into.changed_ns > kSettledAfterNs ? 1 : 0;
  return true;
}

std::uint64_t checksum_of(const fs::path& path) {
  const FileDescriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.get() < 0) throw_errno("open", path);
  Checksum checksum;
  std::vector<char> chunk(kChunk);
  ssize_t got = 0;
  while ((got = read(descriptor.get(), chunk.data(), chunk.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) checksum.add(chunk.data(), static_cast<std::size_t>(got));
  }
  if (got < 0) throw_errno("read", path);
  return checksum.value();
}

bool has_same_times(const Fingerprint& then, const Fingerprint& now) {
  return then.settled != 0 && then.modified_ns == now.modified_ns && then.changed_ns == now.changed_ns &&
         then.device == now.device && then.inode == now.inode;
}

}  // namespace

// Reads the times before the bytes: a change between the two makes a later comparison fail instead of succeed.
Fingerprint Fingerprint::of(const fs::path& path) {
  Fingerprint result;
  if (!read_status(path, result)) throw_errno("stat", path);
  result.checksum = checksum_of(path);
  return result;
}

Change change_since(const Fingerprint& then, const fs::path& path) {
  Fingerprint now;
  if (!read_status(path, now)) return Change::kGone;
  if (now.size != then.size) return Change::kContent;
  if (has_same_times(then, now)) return Change::kNone;
  return checksum_of(path) == then.checksum ? Change::kTouched : Change::kContent;
}

}  // namespace weft::files
