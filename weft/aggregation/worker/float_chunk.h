// Conversion of a chunk of floats (one packet) to exponents and integers per round, and back from their sums.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/aggregation/packet/block_float.h"
#include "weft/aggregation/packet/packet.h"

namespace weft::aggregation {

// Writes the exponents of `chunk`: two bytes for each block of `block_elements` floats.
void write_ranges(std::span<const float> chunk, std::size_t block_elements, std::span<std::byte> exponents);

// The scales of a chunk's blocks, once the exponents of all workers are known.
class FloatChunk {
 public:
  // Buffer of integers between floats and packets. All chunks of a sum share one, because hundreds of buffers would not
  // fit into the cache.
  using Scratch = std::vector<std::int32_t>;

  FloatChunk(int workers, std::size_t block_elements) : workers_(workers), block_elements_(block_elements) {}

  // Sets the scales from the exponents that the switch returned.
  void begin(std::span<const std::byte> exponents, std::size_t blocks);
  // Returns the number of rounds: the maximum over the chunk's blocks.
  [[nodiscard]] int rounds() const { return rounds_; }

  void quantise(std::span<const float> chunk, int round, std::span<std::byte> elements, Scratch& integers) const;
  // After the last round, `chunk` holds the sums.
  void accept(std::span<const std::byte> elements, int round, std::span<float> chunk, Scratch& integers);

 private:
  template <class Visit>
  void for_each_block(std::size_t elements, Visit&& visit) const;

  int workers_;
  std::size_t block_elements_;
  int rounds_ = 0;
  std::vector<BlockScale> scales_;
  std::vector<double> values_;  // kept between rounds; empty if the chunk has one round
};

}  // namespace weft::aggregation
