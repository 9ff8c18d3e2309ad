// Mini-batches in shuffled order: the same from the same seed, whatever the number of ranks, in C++ and in Python.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace weft::data {

struct BatchOptions {
  std::int64_t size = 50;
  std::uint64_t seed = 0;
  bool drop_last = false;  // leave out the last batch where it is smaller than the others
};

// The numbers (int64) of the items of each batch of an epoch. Every item of `count` is in one of them, in an order that
// depends on seed and epoch only. Leaves torch's random state as it is. A rank of a data-parallel job takes
// shard(batch).
[[nodiscard]] std::vector<at::Tensor> shuffled_batches(std::int64_t count, std::int64_t epoch,
                                                       const BatchOptions& options = {});

}  // namespace weft::data
