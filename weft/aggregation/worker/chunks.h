// Division of a vector into chunks of one packet each, assigned to slots in turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/aggregation/worker/sum_stream.h"
#include "weft/partition/scramble.h"

namespace weft::aggregation {

class Chunks {
 public:
  Chunks(const SumLayout& layout, std::size_t elements, std::size_t chunk_elements)
      : layout_(layout),
        elements_(elements),
        chunk_elements_(chunk_elements),
        count_((elements + chunk_elements_ - 1) / chunk_elements_) {}

  [[nodiscard]] int slots() const { return static_cast<int>(std::min<std::size_t>(count_, window())); }
  [[nodiscard]] std::size_t window() const { return static_cast<std::size_t>(layout_.window); }
  [[nodiscard]] bool exists(std::size_t chunk) const { return chunk < count_; }
  [[nodiscard]] std::size_t begin(std::size_t chunk) const { return chunk * chunk_elements_; }
  // The last chunk may be smaller.
  [[nodiscard]] std::size_t size(std::size_t chunk) const {
    return exists(chunk) ? std::min(chunk_elements_, elements_ - begin(chunk)) : 0;
  }
  template <class Number>
  [[nodiscard]] std::span<Number> part(std::span<Number> all, std::size_t chunk) const {
    return all.subspan(begin(chunk), size(chunk));
  }
  // Shape of a packet with the given elements and blocks. SwitchML's packets all have the same shape.
  [[nodiscard]] Shape shape(std::size_t elements, std::size_t blocks) const {
    if (layout_.mode == Mode::kSwitchMl) return full_shape(layout_.mode, layout_.packet_elements);
    return {blocks * kExponentsPerBlock, elements};
  }
  [[nodiscard]] const SumLayout& layout() const { return layout_; }
  // `type` is a number below 4.
  [[nodiscard]] std::uint32_t fingerprint(std::uint32_t type) const {
    const std::uint32_t mean = layout_.reduction == Reduction::kMean ? 4 : 0;
    return static_cast<std::uint32_t>(partition::scramble(elements_ * 8 + type + mean) >> 32);
  }

 private:
  SumLayout layout_;
  std::size_t elements_;
  std::size_t chunk_elements_;
  std::size_t count_;
};

}  // namespace weft::aggregation
