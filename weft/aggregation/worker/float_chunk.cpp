#include "weft/aggregation/worker/float_chunk.h"

#include <algorithm>
#include <type_traits>

namespace weft::aggregation {
namespace {

// The numbers as float32: a view, or for other types a copy in `buffer`.
template <class Number>
std::span<const float> as_floats(std::span<const Number> numbers, BlockBuffer& buffer) {
  if constexpr (std::is_same_v<Number, float>) {
    return numbers;
  } else {
    std::ranges::transform(numbers, buffer.begin(), [](Number x) { return x.to_float(); });
    return std::span<const float>(buffer).first(numbers.size());
  }
}

// Calls write(floats) to produce float32 results and converts them.
template <class Number, class Write>
void write_floats(std::span<Number> out, BlockBuffer& buffer, Write&& write) {
  if constexpr (std::is_same_v<Number, float>) {
    write(out);
  } else {
    const std::span<float> floats = std::span(buffer).first(out.size());
    write(floats);
    std::ranges::transform(floats, out.begin(), [](float x) { return Number::from_float(x); });
  }
}

}  // namespace

template <class Number>
void write_ranges(std::span<const Number> chunk, std::span<std::byte> exponents, BlockBuffer& buffer) {
  const std::size_t block_elements = buffer.size();
  for (std::size_t block = 0; block * block_elements < chunk.size(); ++block) {
    const std::size_t begin = block * block_elements;
    const std::span<const Number> part = chunk.subspan(begin, std::min(block_elements, chunk.size() - begin));
    const RangeBytes bytes = encode(range_of(as_floats(part, buffer)));
    exponents[2 * block] = static_cast<std::byte>(bytes.largest);
    exponents[2 * block + 1] = static_cast<std::byte>(bytes.smallest);
  }
}

template <class Number>
std::size_t FloatChunk<Number>::size(std::size_t block) const {
  return std::min(format_.block_elements, elements_ - start(block));
}

template <class Number>
void FloatChunk<Number>::begin(std::span<const std::byte> exponents, std::size_t elements) {
  elements_ = elements;
  blocks_.clear();
  blocks_.reserve((elements + format_.block_elements - 1) / format_.block_elements);
  further_.clear();
  std::size_t values = 0;
  int rounds = 1;
  for (std::size_t block = 0; start(block) < elements; ++block) {
    const RangeBytes bytes{static_cast<std::int8_t>(exponents[2 * block]),
                           static_cast<std::int8_t>(exponents[2 * block + 1])};
    const BlockScale scale(decode_range(bytes), format_.headroom);
    blocks_.push_back({scale, values});
    if (scale.rounds() > 1) values += size(block);
    rounds = std::max(rounds, scale.rounds());
  }
  values_.resize(values);
  for (int round = 1; round < rounds; ++round) {
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      if (round < blocks_[block].scale.rounds()) further_.push_back({block, round});
    }
  }
}

template <class Number>
int FloatChunk<Number>::packets() const {
  return static_cast<int>((blocks_.size() + further_.size() + format_.packet_blocks - 1) / format_.packet_blocks);
}

template <class Number>
auto FloatChunk<Number>::parts(int packet) const -> PartRange {
  const std::size_t first = static_cast<std::size_t>(packet) * format_.packet_blocks;
  return {first, std::min(first + format_.packet_blocks, blocks_.size() + further_.size())};
}

template <class Number>
std::size_t FloatChunk<Number>::elements(int packet) const {
  const auto [first, last] = parts(packet);
  const std::size_t first_round = std::min(start(std::min(last, blocks_.size())), elements_);
  std::size_t all = first < blocks_.size() ? first_round - start(first) : 0;
  for (std::size_t i = std::max(first, blocks_.size()); i < last; ++i) all += size(part(i).block);
  return all;
}

template <class Number>
void FloatChunk<Number>::quantise(std::span<const Number> chunk, int packet, std::span<std::byte> out,
                                  BlockBuffer& buffer) const {
  std::size_t at = 0;
  const auto [first, last] = parts(packet);
  for (std::size_t i = first; i < last; ++i) {
    const auto [block, round] = part(i);
    const std::span<const float> floats = as_floats(chunk.subspan(start(block), size(block)), buffer);
    blocks_[block].scale.quantise(floats, round, out.subspan(at, 4 * size(block)));
    at += 4 * size(block);
  }
}

template <class Number>
void FloatChunk<Number>::accept(std::span<const std::byte> sums, int packet, std::span<Number> chunk,
                                BlockBuffer& buffer) {
  std::size_t at = 0;
  const auto [first, last] = parts(packet);
  for (std::size_t i = first; i < last; ++i) {
    const auto [block, round] = part(i);
    const std::span<const std::byte> block_sums = sums.subspan(at, 4 * size(block));
    at += 4 * size(block);
    const BlockScale& scale = blocks_[block].scale;
    const std::span<double> values = std::span(values_).subspan(blocks_[block].values_at);
    if (scale.rounds() > 1) scale.accumulate(block_sums, round, values);
    if (round + 1 < scale.rounds()) continue;
    write_floats(chunk.subspan(start(block), size(block)), buffer, [&](std::span<float> out) {
      if (scale.rounds() == 1) return scale.dequantise(block_sums, out, format_.divisor);
      for (std::size_t k = 0; k < out.size(); ++k) out[k] = static_cast<float>(values[k] / format_.divisor);
    });
  }
}

template void write_ranges(std::span<const float>, std::span<std::byte>, BlockBuffer&);
template void write_ranges(std::span<const numeric::Float16>, std::span<std::byte>, BlockBuffer&);
template void write_ranges(std::span<const numeric::BFloat16>, std::span<std::byte>, BlockBuffer&);
template class FloatChunk<float>;
template class FloatChunk<numeric::Float16>;
template class FloatChunk<numeric::BFloat16>;

}  // namespace weft::aggregation
