#include "weft/data/split.h"

#include <stdexcept>
#include <utility>

#include "weft/partition/tiling.h"

namespace weft::data {

Split::Split(std::int64_t shards, partition::Grid tiles) : shards_(shards), tiles_(std::move(tiles)) {
  if (shards < 1) throw std::invalid_argument("weft: expected at least 1 shard, got " + std::to_string(shards));
  if (tiles_.dims() != 2) {
    throw std::invalid_argument("weft: expected a two-dimensional grid of tiles, got " + tiles_.describe());
  }
}

std::int64_t Split::shard(std::int64_t rank) const {
  check(rank);
  return rank / tiles_.size();
}

partition::Box Split::tile(std::int64_t rank, std::int64_t height, std::int64_t width) const {
  check(rank);
  return partition::Tiling::balanced(tiles_, {height, width}).tile(rank % tiles_.size());
}

std::string Split::describe() const {
  return std::to_string(shards_) + (shards_ == 1 ? " shard of " : " shards of ") + tiles_.describe() + " tiles";
}

void Split::check(std::int64_t rank) const {
  if (rank >= 0 && rank < ranks()) return;
  throw std::invalid_argument("weft: rank must be in [0, " + std::to_string(ranks()) + ") for " + describe() +
                              ", got " + std::to_string(rank));
}

}  // namespace weft::data
