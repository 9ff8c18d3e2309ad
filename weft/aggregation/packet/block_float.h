// Block floating point: blocks of floats as integers that a switch can add.
//
// Every worker sends the largest and the smallest exponent of its block. The switch returns the maximum of each (the
// second is sent negated), so all workers use the same scale. One *round* carries the upper 31 - headroom bits of every
// element as an integer, and the sum of the workers' integers is exact in any order. If the elements of a block span so
// many powers of two that small elements would lose too much precision, the block takes further rounds with the next
// lower bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::aggregation {

// Range of a block's biased IEEE exponents (0 for subnormals, 255 for NaN and Inf), of one worker or of all.
struct BlockRange {
  int largest = 0;
  int smallest = 255;  // smallest exponent of the non-zero elements; 255 if all are zero

  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

[[nodiscard]] BlockRange range_of(std::span<const float> block);

// A range as two exponent bytes of a packet. The bytewise maximum over workers encodes the range of all their blocks.
struct RangeBytes {
  std::int8_t largest = 0;
  std::int8_t smallest = 0;
};
[[nodiscard]] RangeBytes encode(const BlockRange& range);
[[nodiscard]] BlockRange decode_range(const RangeBytes& bytes);

// Minimum number of bits that every element keeps, regardless of its block: the precision of bfloat16.
inline constexpr int kKeptBits = 8;

// Scale of a block, identical on all workers.
class BlockScale {
 public:
  // `headroom`: headroom_bits() of the job.
  BlockScale(const BlockRange& of_all_workers, int headroom);

  // Returns true if the block contains NaN or Inf. Such a block takes one round, which sends the positions of NaN and
  // Inf; all other elements become NaN.
  [[nodiscard]] bool has_non_finite() const { return non_finite_; }
  [[nodiscard]] int rounds() const { return rounds_; }
  // log2 of the value of integer 1 in round `round`. The error of the sum is at most workers / 2 quanta of the last
  // round.
  [[nodiscard]] int quantum_exponent(int round) const { return quantum_exponent_ - round * bits_per_round_; }

  // Integers are elements of packets: big-endian int32.
  //
  // Computes the integers of round `round`. It recomputes earlier rounds, because no state is kept between rounds.
  void quantise(std::span<const float> block, int round, std::span<std::byte> packet) const;
  // Adds the values of the sums of round `round` to `values`. Round 0 overwrites them.
  void accumulate(std::span<const std::byte> sums, int round, std::span<double> values) const;
  // Converts the sums of a block that needs one round, divided by `divisor`. Equivalent to accumulate(), division and
  // rounding to float.
  void dequantise(std::span<const std::byte> sums, std::span<float> out, int divisor = 1) const;

 private:
  bool non_finite_;
  int bits_per_round_;
  int quantum_exponent_;  // value in round 0
  int rounds_ = 1;
};

// Number of free bits that prevent overflow when the integers of `workers` workers are added.
[[nodiscard]] int headroom_bits(int workers);

}  // namespace weft::aggregation
