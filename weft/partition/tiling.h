// A field cut into tiles, one for each rank of a grid.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/box.h"
#include "weft/partition/cuts.h"
#include "weft/partition/grid.h"

namespace weft::partition {

class Tiling {
 public:
  // Throws std::invalid_argument unless there are cuts for each dimension of the grid, into as many parts.
  Tiling(Grid grid, std::vector<Cuts> cuts);
  [[nodiscard]] static Tiling balanced(const Grid& grid, const std::vector<std::int64_t>& shape);

  [[nodiscard]] const Grid& grid() const { return grid_; }
  [[nodiscard]] const std::vector<Cuts>& cuts() const { return cuts_; }
  [[nodiscard]] std::size_t dims() const { return cuts_.size(); }
  // Of the whole field.
  [[nodiscard]] std::vector<std::int64_t> shape() const;
  [[nodiscard]] Box tile(std::int64_t rank) const;
  // Every rank's, in rank order.
  [[nodiscard]] std::vector<Box> tiles() const;
  [[nodiscard]] bool is_balanced() const;

  friend bool operator==(const Tiling&, const Tiling&) = default;

 private:
  Grid grid_;
  std::vector<Cuts> cuts_;
};

}  // namespace weft::partition
