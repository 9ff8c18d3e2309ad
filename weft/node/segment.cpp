#include "weft/node/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace weft::node {
namespace {

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Segment::~Segment() {
  forget();
  if (data_ != nullptr) ::munmap(data_, size_);
}

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Segment Segment::create(std::size_t bytes) {
  Segment segment;
  segment.descriptor_ = ::memfd_create("weft.node", MFD_CLOEXEC);
  if (segment.descriptor_ < 0) throw_errno("memfd_create");
  if (::ftruncate(segment.descriptor_, static_cast<off_t>(bytes)) != 0) throw_errno("ftruncate");
  segment.map(segment.descriptor_, bytes);
  return segment;
}

Segment Segment::open(const SegmentHandle& handle) {
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.descriptor);
  Segment segment;
  segment.descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (segment.descriptor_ < 0) throw_errno("open " + path);
  // Another pid namespace could have a process with the same id and another file.
  if (::lseek(segment.descriptor_, 0, SEEK_END) != static_cast<off_t>(handle.bytes)) {
    errno = ESTALE;
    throw_errno(path);
  }
  segment.map(segment.descriptor_, handle.bytes);
  return segment;
}

void Segment::map(int descriptor, std::size_t bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) throw_errno("mmap");
  data_ = static_cast<std::byte*>(mapped);
  size_ = bytes;
}

SegmentHandle Segment::handle() const noexcept { return {::getpid(), descriptor_, size_}; }

void Segment::forget() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace weft::node
