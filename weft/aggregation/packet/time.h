// Time types of the state machines. Callers pass the time to every call, so that tests can use virtual time.
#pragma once

#include <chrono>

namespace weft::aggregation {

using Duration = std::chrono::nanoseconds;
// Time since an arbitrary fixed point; monotonic.
using Time = std::chrono::nanoseconds;

[[nodiscard]] inline Time steady_now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace weft::aggregation
