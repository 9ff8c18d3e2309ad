#include "weft/partition/grid.h"

#include <stdexcept>

namespace weft::partition {

Grid::Grid(std::vector<std::int64_t> extents) : extents_(std::move(extents)) {
  if (extents_.empty()) throw std::invalid_argument("Grid: at least one dimension is required");
  for (const std::int64_t extent : extents_) {
    if (extent < 1) throw std::invalid_argument("Grid: expected extents of at least 1, got " + describe());
  }
}

std::int64_t Grid::size() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents_) product *= extent;
  return product;
}

std::vector<std::int64_t> Grid::coordinates(std::int64_t rank) const {
  if (rank < 0 || rank >= size()) {
    throw std::invalid_argument("Grid: rank must be in [0, " + std::to_string(size()) + "), not " +
                                std::to_string(rank));
  }
  std::vector<std::int64_t> result(dims());
  for (std::size_t i = dims(); i-- > 0;) {
    result[i] = rank % extents_[i];
    rank /= extents_[i];
  }
  return result;
}

std::int64_t Grid::rank(const std::vector<std::int64_t>& coordinates) const {
  if (coordinates.size() != dims()) {
    throw std::invalid_argument("Grid: expected " + std::to_string(dims()) + " coordinates, got " +
                                std::to_string(coordinates.size()));
  }
  std::int64_t result = 0;
  for (std::size_t i = 0; i < dims(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= extents_[i]) {
      throw std::invalid_argument("Grid: coordinate " + std::to_string(i) + " must be in [0, " +
                                  std::to_string(extents_[i]) + "), not " + std::to_string(coordinates[i]));
    }
    result = result * extents_[i] + coordinates[i];
  }
  return result;
}

std::string Grid::describe() const {
  std::string text;
  for (const std::int64_t extent : extents_) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace weft::partition
