// Results in reused host memory: fresh pages cost more than the communication that fills them.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/memory/block_pool.h"

namespace weft::collective {

// An uninitialised, contiguous host tensor. Blocks of memory::kSmallestBlock and more come from the process's pool and
// go back to it when the tensor's storage dies; smaller ones come from torch's allocator.
[[nodiscard]] at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace weft::collective
