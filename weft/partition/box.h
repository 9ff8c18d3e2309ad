// Axis-aligned boxes of cells, one range per dimension: a tile of an image, or the region that a layer needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/partition/range.h"

namespace weft::partition {

struct Box {
  std::vector<Range> ranges;

  [[nodiscard]] std::size_t dims() const { return ranges.size(); }
  // Whether the box contains no cell. A box without dimensions contains one cell.
  [[nodiscard]] bool empty() const;
  [[nodiscard]] std::int64_t volume() const;
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  // Whether `other` lies inside this box; an empty box lies inside every box. Throws like intersect().
  [[nodiscard]] bool contains(const Box& other) const;
  // Throws std::invalid_argument if the numbers of dimensions differ.
  [[nodiscard]] Box intersect(const Box& other) const;
  // Returns text such as "[0, 4) x [2, 6)".
  [[nodiscard]] std::string describe() const;

  // The box [0, shape[i]) in every dimension i.
  [[nodiscard]] static Box whole(const std::vector<std::int64_t>& shape);

  friend bool operator==(const Box&, const Box&) = default;
};

}  // namespace weft::partition
