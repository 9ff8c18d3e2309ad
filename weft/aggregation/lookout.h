// Looks again for a while before its owner sleeps, where that is cheaper.
//
// To sleep and be woken takes tens of microseconds on an idle core, more where the machine is a virtual one. While
// packets come in quicker succession it is cheaper to look again, and to give the core away between looks. Where they
// come slowly, because of a slow link or a slow peer, nothing is burnt.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "weft/aggregation/time.h"

namespace weft::aggregation {

class Lookout {
 public:
  // Begins a wait of at most `longest`. Whether look() found something before it was time to sleep.
  template <class Look>
  [[nodiscard]] bool find(Duration longest, Look&& look) {
    start_ = steady_now();
    const Time until = start_ + std::min(longest, last_wait_ < 2 * kLookAgain ? kLookAgain : Duration{0});
    while (steady_now() < until) {
      ::sched_yield();
      if (look()) return true;
    }
    return false;
  }
  // The wait is over.
  void end() { last_wait_ = steady_now() - start_; }

 private:
  static constexpr Duration kLookAgain = std::chrono::microseconds(50);

  Time start_{0};
  Duration last_wait_{0};
};

}  // namespace weft::aggregation
