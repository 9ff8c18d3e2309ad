#include "weft/mpi/yield.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace weft::mpi {

void yield_core() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSlow = std::chrono::microseconds(500);
  constexpr auto kNap = std::chrono::microseconds(20);
  constexpr auto kMemory = std::chrono::milliseconds(100);
  thread_local Clock::time_point t_crowded_until{};
  const auto now = Clock::now();
  if (now < t_crowded_until) return std::this_thread::sleep_for(kNap);
  sched_yield();
  const auto back = Clock::now();
  if (back - now > kSlow) t_crowded_until = back + kMemory;
}

}  // namespace weft::mpi
