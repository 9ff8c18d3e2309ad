#include "weft/aggregation/packet/block_float.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "weft/aggregation/packet/byte_order.h"
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

// Rounds to the nearest integer, ties to even, if |value| < 2^51. Unlike nearbyint(), compilers vectorise it.
double rounded(double value) {
  constexpr double kShift = 0x1.8p52;  // the spacing of doubles there is 1
  return (value + kShift) - kShift;
}

double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52); }

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
BlockScale::BlockScale(const BlockRange& range, int headroom)
    : non_finite_(range.largest == kNotFinite),
      bits_per_round_(31 - headroom),
      quantum_exponent_(std::max(range.largest, 1) - (kBias - 1) - bits_per_round_) {
  if (non_finite_ || range.smallest == kNotFinite) return;
  // No float has bits below 2^-149.
  const int wanted = range.smallest == 0 ? kSmallestBit : std::max(range.smallest - kBias - kKeptBits, kSmallestBit);
  while (quantum_exponent(rounds_ - 1) > wanted) ++rounds_;
}

void BlockScale::quantise(std::span<const float> block, int round, std::span<std::byte> packet) const {
  std::byte* out = packet.data();
  if (non_finite_) {
    for (std::size_t i = 0; i < block.size(); ++i) store_element(out, i, non_finite::counts_of(block[i]));
    return;
  }
  if (round == 0 && scaling::fits_float(-quantum_exponent_)) {
    return scaling::quantise(block, -quantum_exponent_, packet);
  }
  const double scale = power_of_two(-quantum_exponent(round));
  for (std::size_t i = 0; i < block.size(); ++i) {
    // The subtraction is exact: earlier rounds carried a multiple of their quantum, which a double subtracts from a
    // float without rounding.
    double rest = block[i];
    for (int r = 0; r < round; ++r) {
      rest -= rounded(rest * power_of_two(-quantum_exponent(r))) * power_of_two(quantum_exponent(r));
    }
    store_element(out, i, to_integer(rounded(rest * scale)));
  }
}

void BlockScale::accumulate(std::span<const std::byte> sums, int round, std::span<double> values) const {
  const double quantum = power_of_two(quantum_exponent(round));
  for (std::size_t i = 0; i < sums.size() / 4; ++i) {
    const std::int32_t sum = load_element(sums.data(), i);
    const double value = non_finite_ ? non_finite::value_of(sum) : sum * quantum;
    values[i] = round == 0 ? value : values[i] + value;
  }
}

void BlockScale::dequantise(std::span<const std::byte> sums, std::span<float> out, int divisor) const {
  const auto number = static_cast<unsigned>(divisor);
  const int exponent = quantum_exponent_ - std::countr_zero(number);
  const bool power = (number & (number - 1)) == 0;  // has_single_bit() is a function call without -mpopcnt
  if (!non_finite_ && power && scaling::fits_float(exponent)) {
    return scaling::dequantise(sums, exponent, out);
  }
  const double quantum = power_of_two(quantum_exponent_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int32_t sum = load_element(sums.data(), i);
    out[i] = non_finite_ ? non_finite::value_of(sum) : static_cast<float>(sum * quantum / divisor);
  }
}

}  // namespace weft::aggregation
