// Reused host memory for results: fresh pages cost more than the communication that fills them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::collective {

// An uninitialised, contiguous host tensor. Blocks of 16 KiB and more come from a free list and go back to it when
// the tensor's storage dies; smaller ones come from torch's allocator.
[[nodiscard]] at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType type);

struct PoolStatistics {
  std::int64_t cached_bytes = 0;  // waiting to be reused
  std::int64_t live_bytes = 0;    // in tensors
  std::int64_t hits = 0;
  std::int64_t misses = 0;
};
[[nodiscard]] PoolStatistics pool_statistics();
// Gives the cached blocks back to the system.
void empty_pool();

}  // namespace weft::collective
