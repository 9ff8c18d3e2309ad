// Time as the state machines see it: handed in with every call, so that tests can run them in virtual time.
#pragma once

#include <chrono>

namespace weft::aggregation {

using Duration = std::chrono::nanoseconds;
// Since any fixed moment; never runs backwards.
using Time = std::chrono::nanoseconds;

[[nodiscard]] inline Time steady_now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace weft::aggregation
