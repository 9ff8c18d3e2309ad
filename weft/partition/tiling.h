// A division of a field into tiles, one per rank of a grid.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/box.h"
#include "weft/partition/cuts.h"
#include "weft/partition/grid.h"

namespace weft::partition {

class Tiling {
 public:
  // `cuts` holds one entry per dimension of the grid; entry i must have extents()[i] parts. Throws
  // std::invalid_argument otherwise.
  Tiling(Grid grid, std::vector<Cuts> cuts);
  // Tiles whose sizes differ by at most one per dimension. Throws std::invalid_argument if the dimensions differ.
  [[nodiscard]] static Tiling balanced(const Grid& grid, const std::vector<std::int64_t>& shape);

  [[nodiscard]] const Grid& grid() const { return grid_; }
  [[nodiscard]] const std::vector<Cuts>& cuts() const { return cuts_; }
  [[nodiscard]] std::size_t dims() const { return cuts_.size(); }
  // The size of the whole field.
  [[nodiscard]] std::vector<std::int64_t> shape() const;
  [[nodiscard]] Box tile(std::int64_t rank) const;
  // The tiles of all ranks, in rank order.
  [[nodiscard]] std::vector<Box> tiles() const;
  [[nodiscard]] bool is_balanced() const;

  friend bool operator==(const Tiling&, const Tiling&) = default;

 private:
  Grid grid_;
  std::vector<Cuts> cuts_;
};

}  // namespace weft::partition
