// An opt-in CPU allocator for torch that takes its memory from the process-wide block pool.
#pragma once

#include "weft/memory/block_pool.h"

namespace weft::memory {

// Redirects torch's allocations of at least kSmallestBlock bytes, including those of oneDNN, to
// BlockPool::of_process(). Existing tensors keep their memory. Call it between computations: torch does not lock its
// allocator. Throws c10::Error for invalid limits, or if another allocator is installed that does not support raw
// allocation.
void start_pooling(Limits limits = {});
// Restores torch's previous behaviour and returns free blocks to the system. Tensors from the pool stay valid.
void stop_pooling();
[[nodiscard]] bool is_pooling() noexcept;

}  // namespace weft::memory
