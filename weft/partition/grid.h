// Ranks arranged as a grid with one or more dimensions, in row-major order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::partition {

class Grid {
 public:
  // Throws std::invalid_argument if `extents` is empty or contains a value below 1.
  explicit Grid(std::vector<std::int64_t> extents);

  [[nodiscard]] std::size_t dims() const { return extents_.size(); }
  [[nodiscard]] const std::vector<std::int64_t>& extents() const { return extents_; }
  // The number of ranks.
  [[nodiscard]] std::int64_t size() const;
  // Both throw std::invalid_argument for arguments outside of the grid.
  [[nodiscard]] std::vector<std::int64_t> coordinates(std::int64_t rank) const;
  [[nodiscard]] std::int64_t rank(const std::vector<std::int64_t>& coordinates) const;
  // Returns text such as "2 x 3".
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const Grid&, const Grid&) = default;

 private:
  std::vector<std::int64_t> extents_;
};

}  // namespace weft::partition
