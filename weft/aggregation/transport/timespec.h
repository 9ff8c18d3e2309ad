// Conversion of durations for system calls.
#pragma once

#include <time.h>

#include "weft/aggregation/packet/time.h"

namespace weft::aggregation {

// `duration` must not be negative.
[[nodiscard]] inline timespec to_timespec(Duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {seconds.count(), (duration - seconds).count()};
}

}  // namespace weft::aggregation
