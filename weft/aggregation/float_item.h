// One packet's worth of floats, block by block: its exponents, its integers in each round, and what their sums stand
// for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/aggregation/block_float.h"
#include "weft/aggregation/packet.h"

namespace weft::aggregation {

// Writes two bytes for each block of `block_elements` floats.
void write_ranges(std::span<const float> item, std::size_t block_elements, std::span<std::byte> exponents);

// The scales of an item's blocks, once the exponents of all workers are known.
class FloatItem {
 public:
  // Integers on their way between floats and packets. Shared by the items of a sum: hundreds of their own would take
  // the place of what has to be in the cache.
  using Scratch = std::vector<std::int32_t>;

  FloatItem(int workers, std::size_t block_elements) : workers_(workers), block_elements_(block_elements) {}

  // Takes the exponents that the switch returned.
  void begin(std::span<const std::byte> exponents, std::size_t blocks);
  // Of its block that needs most.
  [[nodiscard]] int rounds() const { return rounds_; }

  void quantise(std::span<const float> item, int round, std::span<std::byte> elements, Scratch& integers) const;
  // After the last round `item` holds the sums.
  void accept(std::span<const std::byte> elements, int round, std::span<float> item, Scratch& integers);

 private:
  template <class Visit>
  void for_each_block(std::size_t elements, Visit&& visit) const;

  int workers_;
  std::size_t block_elements_;
  int rounds_ = 0;
  std::vector<BlockScale> scales_;
  std::vector<double> values_;  // kept between rounds; empty for items of one
};

}  // namespace weft::aggregation
