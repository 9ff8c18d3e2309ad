// Measurements of communication for profilers: the operations of each thread, and the time spent waiting.
#pragma once

#include <chrono>

namespace weft::mpi {

// Called at the end of every outermost operation (OperationScope) of a thread.
using OperationHook = void (*)(const char* name, std::chrono::steady_clock::time_point begin) noexcept;
void set_operation_hook(OperationHook hook) noexcept;

// The time that the threads of this process have spent in waits for other ranks, without the first microseconds of
// each.
[[nodiscard]] std::chrono::nanoseconds time_waited() noexcept;

}  // namespace weft::mpi
