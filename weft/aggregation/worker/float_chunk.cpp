#include "weft/aggregation/worker/float_chunk.h"

#include <algorithm>

#include "weft/aggregation/packet/elements.h"

namespace weft::aggregation {

void write_ranges(std::span<const float> chunk, std::size_t block_elements, std::span<std::byte> exponents) {
  for (std::size_t block = 0; block * block_elements < chunk.size(); ++block) {
    const std::size_t begin = block * block_elements;
    const RangeBytes bytes = encode(range_of(chunk.subspan(begin, std::min(block_elements, chunk.size() - begin))));
    exponents[2 * block] = static_cast<std::byte>(bytes.largest);
    exponents[2 * block + 1] = static_cast<std::byte>(bytes.smallest);
  }
}

void FloatChunk::begin(std::span<const std::byte> exponents, std::size_t blocks) {
  scales_.clear();
  rounds_ = 1;
  for (std::size_t block = 0; block < blocks; ++block) {
    const RangeBytes bytes{static_cast<std::int8_t>(exponents[2 * block]),
                           static_cast<std::int8_t>(exponents[2 * block + 1])};
    scales_.emplace_back(decode_range(bytes), workers_);
    rounds_ = std::max(rounds_, scales_.back().rounds());
  }
}

// Calls visit(scale, offset, size) for each block.
template <class Visit>
void FloatChunk::for_each_block(std::size_t elements, Visit&& visit) const {
  for (std::size_t block = 0; block < scales_.size(); ++block) {
    const std::size_t begin = block * block_elements_;
    visit(scales_[block], begin, std::min(block_elements_, elements - begin));
  }
}

void FloatChunk::quantise(std::span<const float> chunk, int round, std::span<std::byte> elements,
                          Scratch& integers) const {
  integers.resize(chunk.size());
  for_each_block(chunk.size(), [&](const BlockScale& scale, std::size_t begin, std::size_t size) {
    const auto part = std::span(integers).subspan(begin, size);
    if (round < scale.rounds()) {
      scale.quantise(chunk.subspan(begin, size), round, part);
    } else {
      std::ranges::fill(part, 0);  // only other blocks of the packet need this round
    }
  });
  write_elements(elements, integers);
}

void FloatChunk::accept(std::span<const std::byte> elements, int round, std::span<float> chunk, Scratch& integers) {
  integers.resize(chunk.size());
  set_elements(integers, elements);
  if (rounds_ > 1) values_.resize(chunk.size());
  for_each_block(chunk.size(), [&](const BlockScale& scale, std::size_t begin, std::size_t size) {
    const auto sums = std::span<const std::int32_t>(integers).subspan(begin, size);
    if (rounds_ == 1) return scale.dequantise(sums, chunk.subspan(begin, size));
    if (round < scale.rounds()) scale.accumulate(sums, round, std::span(values_).subspan(begin, size));
  });
  if (rounds_ > 1 && round + 1 == rounds_) {
    std::ranges::transform(values_, chunk.begin(), [](double value) { return static_cast<float>(value); });
  }
}

}  // namespace weft::aggregation
