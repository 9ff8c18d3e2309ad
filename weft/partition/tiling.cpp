#include "weft/partition/tiling.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace weft::partition {

Tiling::Tiling(Grid grid, std::vector<Cuts> cuts) : grid_(std::move(grid)), cuts_(std::move(cuts)) {
  if (cuts_.size() != grid_.dims()) {
    throw std::invalid_argument("Tiling: expected cuts for each of the " + std::to_string(grid_.dims()) +
                                " dimensions of the grid, got cuts for " + std::to_string(cuts_.size()));
  }
  for (std::size_t i = 0; i < cuts_.size(); ++i) {
    if (cuts_[i].parts() == grid_.extents()[i]) continue;
    throw std::invalid_argument("Tiling: a grid of " + grid_.describe() + " needs " +
                                std::to_string(grid_.extents()[i]) + " parts in dimension " + std::to_string(i) +
                                ", got " + std::to_string(cuts_[i].parts()));
  }
}

Tiling Tiling::balanced(const Grid& grid, const std::vector<std::int64_t>& shape) {
  if (shape.size() != grid.dims()) {
    throw std::invalid_argument("Tiling: a grid of " + grid.describe() + " expects a field of " +
                                std::to_string(grid.dims()) + " dimensions, got " + std::to_string(shape.size()));
  }
  std::vector<Cuts> cuts;
  for (std::size_t i = 0; i < shape.size(); ++i) cuts.push_back(Cuts::balanced(shape[i], grid.extents()[i]));
  return {grid, std::move(cuts)};
}

std::vector<std::int64_t> Tiling::shape() const {
  std::vector<std::int64_t> result;
  for (const Cuts& cuts : cuts_) result.push_back(cuts.total());
  return result;
}

Box Tiling::tile(std::int64_t rank) const {
  const auto coordinates = grid_.coordinates(rank);
  Box result;
  for (std::size_t i = 0; i < dims(); ++i) result.ranges.push_back(cuts_[i].part(coordinates[i]));
  return result;
}

std::vector<Box> Tiling::tiles() const {
  std::vector<Box> result;
  for (std::int64_t rank = 0; rank < grid_.size(); ++rank) result.push_back(tile(rank));
  return result;
}

bool Tiling::is_balanced() const {
  return std::all_of(cuts_.begin(), cuts_.end(), [](const Cuts& cuts) { return cuts.is_balanced(); });
}

}  // namespace weft::partition
