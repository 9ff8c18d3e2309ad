#include "weft/aggregation/float_item.h"

#include <algorithm>

#include "weft/aggregation/elements.h"

namespace weft::aggregation {

void write_ranges(std::span<const float> item, std::size_t block_elements, std::span<std::byte> exponents) {
  for (std::size_t block = 0; block * block_elements < item.size(); ++block) {
    const std::size_t begin = block * block_elements;
    const RangeBytes bytes = encode(range_of(item.subspan(begin, std::min(block_elements, item.size() - begin))));
    exponents[2 * block] = static_cast<std::byte>(bytes.largest);
    exponents[2 * block + 1] = static_cast<std::byte>(bytes.smallest);
  }
}

void FloatItem::begin(std::span<const std::byte> exponents, std::size_t blocks) {
  scales_.clear();
  rounds_ = 1;
  for (std::size_t block = 0; block < blocks; ++block) {
    const RangeBytes bytes{static_cast<std::int8_t>(exponents[2 * block]),
                           static_cast<std::int8_t>(exponents[2 * block + 1])};
    scales_.emplace_back(decode_range(bytes), workers_);
    rounds_ = std::max(rounds_, scales_.back().rounds());
  }
}

// visit(scale, where the block begins, its size)
template <class Visit>
void FloatItem::for_each_block(std::size_t elements, Visit&& visit) const {
  for (std::size_t block = 0; block < scales_.size(); ++block) {
    const std::size_t begin = block * block_elements_;
    visit(scales_[block], begin, std::min(block_elements_, elements - begin));
  }
}

void FloatItem::quantise(std::span<const float> item, int round, std::span<std::byte> elements,
                         Scratch& integers) const {
  integers.resize(item.size());
  for_each_block(item.size(), [&](const BlockScale& scale, std::size_t begin, std::size_t size) {
    const auto part = std::span(integers).subspan(begin, size);
    if (round < scale.rounds()) {
      scale.quantise(item.subspan(begin, size), round, part);
    } else {
      std::ranges::fill(part, 0);  // only other blocks of the packet need this round
    }
  });
  write_elements(elements, integers);
}

void FloatItem::accept(std::span<const std::byte> elements, int round, std::span<float> item, Scratch& integers) {
  integers.resize(item.size());
  set_elements(integers, elements);
  if (rounds_ > 1) values_.resize(item.size());
  for_each_block(item.size(), [&](const BlockScale& scale, std::size_t begin, std::size_t size) {
    const auto sums = std::span<const std::int32_t>(integers).subspan(begin, size);
    if (rounds_ == 1) return scale.dequantise(sums, item.subspan(begin, size));
    if (round < scale.rounds()) scale.accumulate(sums, round, std::span(values_).subspan(begin, size));
  });
  if (rounds_ > 1 && round + 1 == rounds_) {
    std::ranges::transform(values_, item.begin(), [](double value) { return static_cast<float>(value); });
  }
}

}  // namespace weft::aggregation
