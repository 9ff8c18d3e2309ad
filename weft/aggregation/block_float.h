// Floats as integers that a switch can add: a block of them shares a power of two, the largest of all workers.
//
// Every worker tells the largest and the smallest exponent of its block; the switch returns the largest of each (the
// second travels negated), so that all workers scale alike. One *round* carries the upper 31 - headroom bits of every
// element as an integer, and the sum of the workers' integers is exact in any order. A block whose numbers span so many
// powers of two that small ones would lose too much takes further rounds, each with the next lower bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::aggregation {

// What one worker, or all of them, know of a block: IEEE exponents, biased (0 for subnormals, 255 for NaN and Inf).
struct BlockRange {
  int largest = 0;
  int smallest = 255;  // of those that are not zero; 255 if there are none

  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

[[nodiscard]] BlockRange range_of(std::span<const float> block);

// As two exponent bytes of a packet: the maximum over workers of each is the range of all workers' blocks.
struct RangeBytes {
  std::int8_t largest = 0;
  std::int8_t smallest = 0;
};
[[nodiscard]] RangeBytes encode(const BlockRange& range);
[[nodiscard]] BlockRange decode_range(const RangeBytes& bytes);

// Elements keep at least so many bits, bfloat16's precision, whatever stands beside them in their block.
inline constexpr int kKeptBits = 8;

// How a block is scaled, the same on all workers.
class BlockScale {
 public:
  BlockScale(const BlockRange& of_all_workers, int workers);

  // NaN or Inf is in it: one round, which tells where, and everything else in the block is lost (NaN).
  [[nodiscard]] bool poisoned() const { return poisoned_; }
  [[nodiscard]] int rounds() const { return rounds_; }
  // What 1 stands for in round `round`, as a power of two: the sum's error is at most workers / 2 of the last round's.
  [[nodiscard]] int quantum_exponent(int round) const { return quantum_exponent_ - round * bits_per_round_; }

  // The integers of round `round`. The elements of earlier rounds are recomputed: nothing is kept between rounds.
  void quantise(std::span<const float> block, int round, std::span<std::int32_t> out) const;
  // Adds what the sums of round `round` stand for to `values`; begins anew with round 0.
  void accumulate(std::span<const std::int32_t> sums, int round, std::span<double> values) const;
  // What accumulate() and rounding to float give for a block of one round.
  void dequantise(std::span<const std::int32_t> sums, std::span<float> out) const;

 private:
  bool poisoned_;
  int bits_per_round_;
  int quantum_exponent_;  // of round 0
  int rounds_ = 1;
};

// Bits to leave free so that the integers of so many workers add up without overflow.
[[nodiscard]] int headroom_bits(int workers);

}  // namespace weft::aggregation
