// Cross-memory attach: copies between the memory of this process and that of another one, without a shared segment.
#pragma once

#include <cstdint>

namespace weft::node {

// Both functions return 0, or the error number of the system call: ESRCH if the process has ended, EPERM if the system
// forbids access (ptrace scope, containers), EFAULT if the other process has no such memory.
[[nodiscard]] int read_memory(std::int64_t process, std::uint64_t remote, void* local, std::int64_t bytes) noexcept;
[[nodiscard]] int write_memory(std::int64_t process, std::uint64_t remote, const void* local,
                               std::int64_t bytes) noexcept;

// Permits processes of the same user to access the memory of this one, if the Yama security module restricts it to
// ancestors.
void permit_access() noexcept;

}  // namespace weft::node
