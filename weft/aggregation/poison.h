// Blocks that hold NaN or Inf: their integers count, per element, how many workers have which, so that the sum says
// what an IEEE sum would be where anything not finite is in it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace weft::aggregation::poison {

// Ten bits each: that many workers at most.
inline constexpr std::int32_t kNan = 1;
inline constexpr std::int32_t kPlusInfinity = 1 << 10;
inline constexpr std::int32_t kMinusInfinity = 1 << 20;
inline constexpr std::int32_t kCountMask = (1 << 10) - 1;

inline void classify(std::span<const float> block, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    out[i] = std::isnan(block[i]) ? kNan : std::isinf(block[i]) ? (block[i] > 0 ? kPlusInfinity : kMinusInfinity) : 0;
  }
}

[[nodiscard]] inline float value_of(std::int32_t counts) {
  const bool plus = (counts / kPlusInfinity & kCountMask) > 0;
  const bool minus = (counts / kMinusInfinity & kCountMask) > 0;
  const bool nan = (counts & kCountMask) > 0 || plus == minus;  // of finite elements nothing is known: NaN as well
  if (nan) return std::numeric_limits<float>::quiet_NaN();
  return plus ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity();
}

}  // namespace weft::aggregation::poison
