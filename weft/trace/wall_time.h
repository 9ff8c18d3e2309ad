// Wall-clock time for files.
#pragma once

#include <chrono>

namespace weft::trace {

[[nodiscard]] inline double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1000;
}

}  // namespace weft::trace
