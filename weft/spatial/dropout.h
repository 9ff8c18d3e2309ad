// Dropout with masks that depend on the seed and a cell's position in the whole batch, not on the split.
#pragma once

#include <cstdint>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Keeps each value with probability 1 - p and divides it by 1 - p. `whole_channels` drops whole channels of an image.
// The seed must be the same on all ranks. `first` is the position of x's first image in a batch that is split over
// ranks. No communication.
[[nodiscard]] DistTensor dropout(const DistTensor& x, double p, std::int64_t seed, bool whole_channels = false,
                                 std::int64_t first = 0);

// Like dropout() above, for a tensor that every rank holds whole.
[[nodiscard]] at::Tensor dropout(const at::Tensor& x, double p, std::int64_t seed, std::int64_t first = 0);

// Returns the seed of a network's masks, which rank 0 draws from torch's default generator. Collective; without a
// communicator the caller draws its own.
[[nodiscard]] std::int64_t draw_seed(const CommunicatorPtr& comm);
// Returns the seed of a layer's mask in training step `step`.
[[nodiscard]] std::int64_t mask_seed(std::uint64_t layer_seed, std::uint64_t step);

}  // namespace weft::spatial
