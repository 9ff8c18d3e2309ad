// Yields the core to other threads while this thread waits for another rank.
#pragma once

namespace weft::mpi {

// If the other threads yield too, it returns within microseconds. A thread that computes keeps the core for a time
// slice of several milliseconds, a thousand times the latency of a message, while a sleeping thread is scheduled as
// soon as it wakes up. After meeting a computing thread, the calling thread therefore sleeps instead, for a while.
void yield_core() noexcept;

}  // namespace weft::mpi
