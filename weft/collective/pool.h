// Tensors in pooled host memory: page faults of fresh memory cost more than the communication that fills it.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/memory/block_pool.h"

namespace weft::collective {

// Returns an uninitialized, contiguous host tensor. Blocks of at least memory::kSmallestBlock bytes come from the pool
// of the process and return to it with the tensor's storage; torch allocates smaller ones.
[[nodiscard]] at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace weft::collective
