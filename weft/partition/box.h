// Boxes: products of ranges, one per dimension. A tile of an image, or the part of it that a layer needs, is one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/partition/range.h"

namespace weft::partition {

struct Box {
  std::vector<Range> ranges;

  [[nodiscard]] std::size_t dims() const { return ranges.size(); }
  // True where it holds no cell. A box of no dimensions holds one.
  [[nodiscard]] bool empty() const;
  [[nodiscard]] std::int64_t volume() const;
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  // Whether all of `other` lies inside; an empty box lies in every one.
  [[nodiscard]] bool contains(const Box& other) const;
  // Throws std::invalid_argument unless both have as many dimensions.
  [[nodiscard]] Box intersect(const Box& other) const;
  // "[0, 4) x [2, 6)".
  [[nodiscard]] std::string describe() const;

  // From 0 to `shape` in every dimension.
  [[nodiscard]] static Box whole(const std::vector<std::int64_t>& shape);

  friend bool operator==(const Box&, const Box&) = default;
};

}  // namespace weft::partition
