// Torch's host tensors in reused memory: an allocator for torch on top of the process's pool, opt-in.
#pragma once

#include "weft/memory/block_pool.h"

namespace weft::memory {

// From now on torch's allocations of kSmallestBlock and more come from BlockPool::of_process(), oneDNN's among them.
// Tensors that exist are not touched. To be called between computations: torch itself does not lock its allocator.
// Throws (TORCH_CHECK) where a foreign allocator is in place that cannot work without contexts.
void start_pooling(Limits limits = {});
// Torch's own allocator again, and what is free goes back to the system. Tensors out of the pool stay valid.
void stop_pooling();
[[nodiscard]] bool is_pooling() noexcept;

}  // namespace weft::memory
