#include "weft/aggregation/transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "weft/aggregation/packet/packet_keys.h"

namespace weft::aggregation {
namespace {

constexpr std::size_t kCookiePage = 4096;  // the cookie, and alignment of the places
// The size is fixed: if a worker could shrink the file, the switch would crash when it accesses the memory.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t file_bytes(int slots, int packet_elements) {
  return kCookiePage + SharedSlots::bytes(slots, packet_elements);
}

// Opening a device can have effects, so the file is first opened without access. Only anonymous files have seals.
files::FileDescriptor open_anonymous_file(const SharedMemoryName& name) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  const files::FileDescriptor handle(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status{};
  if (handle.get() < 0 || fstat(handle.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return files::FileDescriptor();
  }
  files::FileDescriptor file(
      ::open(("/proc/self/fd/" + std::to_string(handle.get())).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  return file.get() >= 0 && fcntl(file.get(), F_GET_SEALS) == kSeals ? std::move(file) : files::FileDescriptor();
}

bool has_bytes(int file, std::size_t bytes) {
  struct stat status{};
  return fstat(file, &status) == 0 && static_cast<std::size_t>(status.st_size) >= bytes;
}

}  // namespace

SharedMemory::SharedMemory(files::FileDescriptor file, const SharedMemoryName& name, std::span<std::byte> memory,
                           int packet_elements)
    : file_(std::move(file)), name_(name), memory_(memory), slots_(memory.subspan(kCookiePage), packet_elements) {}

SharedMemory::~SharedMemory() { ::munmap(memory_.data(), memory_.size()); }

std::shared_ptr<const SharedMemory> SharedMemory::map(files::FileDescriptor file, const SharedMemoryName& name,
                                                      std::size_t bytes, int packet_elements) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::shared_ptr<const SharedMemory>(
      new SharedMemory(std::move(file), name, {static_cast<std::byte*>(memory), bytes}, packet_elements));
}

std::shared_ptr<const SharedMemory> SharedMemory::create(int slots, int packet_elements) {
  const std::size_t bytes = file_bytes(slots, packet_elements);
  files::FileDescriptor file(::memfd_create("weft-sml", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const SharedMemoryName name{::getpid(), file.get(), random_worker_salt()};
  if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::pwrite(file.get(), name.cookie.data(), name.cookie.size(), 0) != static_cast<ssize_t>(name.cookie.size()) ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return nullptr;
  }
  return map(std::move(file), name, bytes, packet_elements);
}

std::shared_ptr<const SharedMemory> SharedMemory::open(const SharedMemoryName& name, int slots, int packet_elements) {
  const std::size_t bytes = file_bytes(slots, packet_elements);
  files::FileDescriptor file = open_anonymous_file(name);
  std::array<std::uint8_t, sizeof(name.cookie)> cookie{};
  if (file.get() < 0 || !has_bytes(file.get(), bytes) ||
      ::pread(file.get(), cookie.data(), cookie.size(), 0) != static_cast<ssize_t>(cookie.size()) ||
      cookie != name.cookie) {
    return nullptr;
  }
  return map(std::move(file), name, bytes, packet_elements);
}

}  // namespace weft::aggregation
