#include "weft/aggregation/packet/block_float.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "weft/aggregation/packet/non_finite.h"
#include "weft/aggregation/packet/scaling.h"

namespace weft::aggregation {
namespace {

constexpr int kBias = 127;
constexpr int kNotFinite = 255;
constexpr int kSmallestBit = -149;  // exponent of the smallest subnormal

// The largest integer that a float below 2^(31 - headroom) can round to. A float has 24 bits, so it rounds up to the
// power of two itself only if headroom is larger than 7.
std::int64_t largest_integer(int headroom) {
  const std::int64_t power = std::int64_t{1} << (31 - headroom);
  return headroom <= 7 ? power - (power >> 24) : power;
}

// Saturates values that do not fit: the exponents in a received packet may be wrong. The result for NaN is unspecified.
std::int32_t to_integer(double value) {
  constexpr double kLowest = std::numeric_limits<std::int32_t>::min();
  constexpr double kHighest = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(value > kLowest ? std::min(value, kHighest) : kLowest);
}

}  // namespace

int headroom_bits(int workers) {
  int bits = 0;
  while (workers * largest_integer(bits) > std::numeric_limits<std::int32_t>::max()) ++bits;
  return bits;
}

BlockRange range_of(std::span<const float> block) { return scaling::range_of(block); }

RangeBytes encode(const BlockRange& range) {
  return {static_cast<std::int8_t>(range.largest - 128), static_cast<std::int8_t>(127 - range.smallest)};
}

BlockRange decode_range(const RangeBytes& bytes) { return {bytes.largest + 128, 127 - bytes.smallest}; }

// A float of biased exponent E is below 2^(E - 126); subnormals (E = 0) have the scale of E = 1.
BlockScale::BlockScale(const BlockRange& range, int workers)
    : non_finite_(range.largest == kNotFinite),
      bits_per_round_(31 - headroom_bits(workers)),
      quantum_exponent_(std::max(range.largest, 1) - (kBias - 1) - bits_per_round_) {
  if (non_finite_ || range.smallest == kNotFinite) return;
  // No float has bits below 2^-149.
  const int wanted = range.smallest == 0 ? kSmallestBit : std::max(range.smallest - kBias - kKeptBits, kSmallestBit);
  while (quantum_exponent(rounds_ - 1) > wanted) ++rounds_;
}

void BlockScale::quantise(std::span<const float> block, int round, std::span<std::int32_t> out) const {
  if (non_finite_) return non_finite::classify(block, out);
  if (rounds_ == 1 && scaling::fits_float(-quantum_exponent_)) return scaling::quantise(block, -quantum_exponent_, out);
  for (std::size_t i = 0; i < block.size(); ++i) {
    // The subtraction is exact: earlier rounds carried a multiple of their quantum, which a double subtracts from a
    // float without rounding.
    double rest = block[i];
    for (int r = 0; r < round; ++r)
      rest -= std::ldexp(std::nearbyint(std::ldexp(rest, -quantum_exponent(r))), quantum_exponent(r));
    out[i] = to_integer(std::nearbyint(std::ldexp(rest, -quantum_exponent(round))));
  }
}

void BlockScale::accumulate(std::span<const std::int32_t> sums, int round, std::span<double> values) const {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double value = non_finite_ ? non_finite::value_of(sums[i]) : std::ldexp(sums[i], quantum_exponent(round));
    values[i] = round == 0 ? value : values[i] + value;
  }
}

void BlockScale::dequantise(std::span<const std::int32_t> sums, std::span<float> out) const {
  if (!non_finite_ && scaling::fits_float(quantum_exponent_)) return scaling::dequantise(sums, quantum_exponent_, out);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out[i] = non_finite_ ? non_finite::value_of(sums[i])
                         : static_cast<float>(std::ldexp(static_cast<double>(sums[i]), quantum_exponent_));
  }
}

}  // namespace weft::aggregation
