// A vector cut into packets' worth, the items, dealt out to slots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/aggregation/operation.h"
#include "weft/partition/scramble.h"

namespace weft::aggregation {

class Items {
 public:
  Items(const Layout& layout, std::size_t elements)
      : layout_(layout),
        elements_(elements),
        per_item_(static_cast<std::size_t>(layout.packet_elements)),
        count_((elements + per_item_ - 1) / per_item_) {}

  [[nodiscard]] int slots() const { return static_cast<int>(std::min<std::size_t>(count_, window())); }
  [[nodiscard]] std::size_t window() const { return static_cast<std::size_t>(layout_.window); }
  [[nodiscard]] bool exists(std::size_t item) const { return item < count_; }
  [[nodiscard]] std::size_t begin(std::size_t item) const { return item * per_item_; }
  // Fewer than the others' in the last item.
  [[nodiscard]] std::size_t size(std::size_t item) const {
    return exists(item) ? std::min(per_item_, elements_ - begin(item)) : 0;
  }
  template <class Number>
  [[nodiscard]] std::span<Number> part(std::span<Number> all, std::size_t item) const {
    return all.subspan(begin(item), size(item));
  }
  // Of a packet with so many elements and blocks; SwitchML's are all alike.
  [[nodiscard]] Shape shape(std::size_t elements, std::size_t blocks) const {
    if (layout_.mode == Mode::kSwitchMl) return full_shape(layout_.mode, layout_.packet_elements);
    return {blocks * kExponentsPerBlock, elements};
  }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] std::uint32_t fingerprint(std::uint32_t type) const {
    return static_cast<std::uint32_t>(partition::scramble(elements_ * 8 + type) >> 32);
  }

 private:
  Layout layout_;
  std::size_t elements_;
  std::size_t per_item_;
  std::size_t count_;
};

}  // namespace weft::aggregation
