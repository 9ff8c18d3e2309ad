// Dropout whose mask depends on the seed and a cell's place in the whole field, not on how the field is cut.
#pragma once

#include <cstdint>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Each value is kept with probability 1 - p and then divided by it. `whole_channels` drops a channel of an image at a
// time. No communication; the seed must be the same on all ranks.
[[nodiscard]] DistTensor dropout(const DistTensor& x, double p, std::int64_t seed, bool whole_channels = false);

// The same for a tensor that every rank holds whole.
[[nodiscard]] at::Tensor dropout(const at::Tensor& x, double p, std::int64_t seed);

}  // namespace weft::spatial
