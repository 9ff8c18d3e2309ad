// Polls for a short time before its owner sleeps.
//
// Sleeping and waking takes tens of microseconds on an idle core, and longer on virtual machines. While packets arrive
// in quick succession, polling is cheaper; the core is yielded between polls. If packets arrive slowly, because of a
// slow link or peer, it does not poll.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "weft/aggregation/packet/time.h"

namespace weft::aggregation {

class SpinWait {
 public:
  // Starts a wait of at most `longest`. Returns whether look() returned true before the caller should sleep.
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
  // Ends the wait.
  void end() { last_wait_ = steady_now() - start_; }

 private:
  static constexpr Duration kLookAgain = std::chrono::microseconds(50);

  Time start_{0};
  Duration last_wait_{0};
};

}  // namespace weft::aggregation
