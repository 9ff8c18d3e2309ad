// The division of a set of images among ranks: by images (shards), by tiles of every image, or both.
#pragma once

#include <cstdint>
#include <string>

#include "weft/partition/box.h"
#include "weft/partition/grid.h"

namespace weft::data {

class Split {
 public:
  // No division: one rank owns everything.
  Split() : Split(1, partition::Grid({1, 1})) {}
  // `shards` groups of ranks, each a grid of tiles (rows x columns). Ranks are numbered by shard, then by tile. Throws
  // std::invalid_argument if there are no shards or the grid is not two-dimensional.
  Split(std::int64_t shards, partition::Grid tiles);
  [[nodiscard]] static Split into_shards(std::int64_t ranks) { return {ranks, partition::Grid({1, 1})}; }
  [[nodiscard]] static Split into_tiles(std::int64_t rows, std::int64_t columns) {
    return {1, partition::Grid({rows, columns})};
  }

  [[nodiscard]] std::int64_t ranks() const { return shards_ * tiles_.size(); }
  [[nodiscard]] std::int64_t shards() const { return shards_; }
  [[nodiscard]] const partition::Grid& tiles() const { return tiles_; }
  // Both throw std::invalid_argument if `rank` is out of range.
  [[nodiscard]] std::int64_t shard(std::int64_t rank) const;
  // The rows and columns of an image that the rank owns, divided as in weft/spatial.
  [[nodiscard]] partition::Box tile(std::int64_t rank, std::int64_t height, std::int64_t width) const;
  // Returns text such as "2 shards of 2 x 2 tiles".
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const Split&, const Split&) = default;

 private:
  void check(std::int64_t rank) const;

  std::int64_t shards_;
  partition::Grid tiles_;
};

}  // namespace weft::data
