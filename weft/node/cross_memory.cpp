#include "weft/node/cross_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace weft::node {
namespace {

// The kernel transfers less than 2 GiB per call and may transfer less than requested.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

template <class Transfer>
int transfer(Transfer&& call, std::uint64_t remote, std::byte* local, std::int64_t bytes) noexcept {
  while (bytes > 0) {
    const auto n = static_cast<std::size_t>(std::min(bytes, kMostBytes));
    const iovec mine{local, n};
    const iovec theirs{reinterpret_cast<void*>(remote), n};
    const ssize_t done = call(mine, theirs);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : EFAULT;
    local += done;
    remote += static_cast<std::uint64_t>(done);
    bytes -= done;
  }
  return 0;
}

}  // namespace

int read_memory(std::int64_t process, std::uint64_t remote, void* local, std::int64_t bytes) noexcept {
  const auto call = [&](const iovec& mine, const iovec& theirs) {
    return ::process_vm_readv(static_cast<pid_t>(process), &mine, 1, &theirs, 1, 0);
  };
  return transfer(call, remote, static_cast<std::byte*>(local), bytes);
}

int write_memory(std::int64_t process, std::uint64_t remote, const void* local, std::int64_t bytes) noexcept {
  const auto call = [&](const iovec& mine, const iovec& theirs) {
    return ::process_vm_writev(static_cast<pid_t>(process), &mine, 1, &theirs, 1, 0);
  };
  return transfer(call, remote, static_cast<std::byte*>(const_cast<void*>(local)), bytes);
}

void permit_access() noexcept { ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

}  // namespace weft::node
