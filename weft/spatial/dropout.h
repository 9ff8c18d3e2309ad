// Dropout whose mask depends on the seed and a cell's place in the whole batch, not on how fields or batches are cut.
#pragma once

#include <cstdint>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Each value is kept with probability 1 - p and then divided by it. `whole_channels` drops a channel of an image at a
// time. No communication; the seed must be the same on all ranks. `first` is the place of x's first image in a batch of
// which other ranks have other images.
[[nodiscard]] DistTensor dropout(const DistTensor& x, double p, std::int64_t seed, bool whole_channels = false,
                                 std::int64_t first = 0);

// The same for a tensor that every rank holds whole.
[[nodiscard]] at::Tensor dropout(const at::Tensor& x, double p, std::int64_t seed, std::int64_t first = 0);

}  // namespace weft::spatial
