// Conversion of a chunk of floats to the integers of its packets, and back from their sums.
//
// A chunk fits into one packet. Its first packet carries round 0 of every block. Blocks whose elements span too many
// powers of two take further rounds (block_float.h). Only these blocks are sent again: in the first packet if it has
// room, otherwise in further packets.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/aggregation/packet/block_float.h"
#include "weft/numeric/half.h"

namespace weft::aggregation {

struct FloatFormat {
  std::size_t block_elements = 64;
  std::size_t packet_blocks = 1;  // maximum per packet
  int headroom = 0;               // headroom_bits() of the job
  int divisor = 1;                // the results are the sums divided by it
};

// float32 copy of a block of float16 or bfloat16, as long as a block. All chunks of a sum share it, so that it stays in
// the cache.
using BlockBuffer = std::vector<float>;

// Writes the exponents of `chunk`: two bytes per block.
template <class Number>
void write_ranges(std::span<const Number> chunk, std::span<std::byte> exponents, BlockBuffer& buffer);

// The scales of a chunk's blocks, once the exponents of all workers are known. Number: float, Float16 or BFloat16.
template <class Number>
class FloatChunk {
 public:
  explicit FloatChunk(const FloatFormat& format) : format_(format) {}

  // Sets the scales of a chunk of `elements` elements from the exponents that the switch returned.
  void begin(std::span<const std::byte> exponents, std::size_t elements);
  [[nodiscard]] int packets() const;
  // Number of elements in a packet.
  [[nodiscard]] std::size_t elements(int packet) const;

  void quantise(std::span<const Number> chunk, int packet, std::span<std::byte> out, BlockBuffer& buffer) const;
  // Writes the results of all blocks whose last round is in this packet; the others keep their contents.
  void accept(std::span<const std::byte> sums, int packet, std::span<Number> chunk, BlockBuffer& buffer);

 private:
  struct Block {
    BlockScale scale;
    std::size_t values_at;  // index in values_, if the block has several rounds
  };
  struct Part {
    std::size_t block;
    int round;
  };
  // Parts of a packet: those below blocks_.size() are round 0 of each block, the others are in further_.
  struct PartRange {
    std::size_t begin;
    std::size_t end;
  };

  [[nodiscard]] PartRange parts(int packet) const;
  [[nodiscard]] Part part(std::size_t index) const {
    return index < blocks_.size() ? Part{index, 0} : further_[index - blocks_.size()];
  }
  // Position of a block in the chunk.
  [[nodiscard]] std::size_t start(std::size_t block) const { return block * format_.block_elements; }
  [[nodiscard]] std::size_t size(std::size_t block) const;

  FloatFormat format_;
  std::size_t elements_ = 0;
  std::vector<Block> blocks_;
  std::vector<Part> further_;   // rounds after the first
  std::vector<double> values_;  // sums of the blocks with several rounds
};

}  // namespace weft::aggregation
