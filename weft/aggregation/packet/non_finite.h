// Encoding of blocks that contain NaN or Inf: each integer counts the workers with NaN, +Inf and -Inf at that position,
// so that the sum of the integers gives the IEEE result.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace weft::aggregation::non_finite {

// Ten bits per count, which limits the number of workers to 1023.
inline constexpr std::int32_t kNan = 1;
inline constexpr std::int32_t kPlusInfinity = 1 << 10;
inline constexpr std::int32_t kMinusInfinity = 1 << 20;
inline constexpr std::int32_t kCountMask = (1 << 10) - 1;

[[nodiscard]] inline std::int32_t counts_of(float value) {
  if (std::isnan(value)) return kNan;
  return std::isinf(value) ? (value > 0 ? kPlusInfinity : kMinusInfinity) : 0;
}

[[nodiscard]] inline float value_of(std::int32_t counts) {
  const bool plus = (counts / kPlusInfinity & kCountMask) > 0;
  const bool minus = (counts / kMinusInfinity & kCountMask) > 0;
  const bool nan =
      (counts & kCountMask) > 0 || plus == minus;  // NaN also for finite elements, whose values were not sent
  if (nan) return std::numeric_limits<float>::quiet_NaN();
  return plus ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity();
}

}  // namespace weft::aggregation::non_finite
