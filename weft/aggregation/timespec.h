// Durations as the kernel's waits take them.
#pragma once

#include <time.h>

#include "weft/aggregation/time.h"

namespace weft::aggregation {

// Not negative.
[[nodiscard]] inline timespec to_timespec(Duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {seconds.count(), (duration - seconds).count()};
}

}  // namespace weft::aggregation
