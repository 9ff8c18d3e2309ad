// Shuffled mini-batches that depend only on the seed and the epoch, not on the number of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace weft::data {

struct BatchOptions {
  std::int64_t size = 50;
  std::uint64_t seed = 0;
  bool drop_last = false;  // drop the last batch if it is smaller than the others
};

// Returns the item indices (int64) of each batch of an epoch. Each of the `count` items is in exactly one batch. Does
// not use torch's global random state. A rank of a data-parallel job uses shard(batch). Throws std::invalid_argument if
// an argument is out of range.
[[nodiscard]] std::vector<at::Tensor> shuffled_batches(std::int64_t count, std::int64_t epoch,
                                                       const BatchOptions& options = {});

}  // namespace weft::data
