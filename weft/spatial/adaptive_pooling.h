// Pooling to a given number of outputs, and over the whole field.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// To `outputs` cells in each dimension, tiled like everything else. Collective.
[[nodiscard]] DistTensor adaptive_average_pool(const DistTensor& x, const std::vector<std::int64_t>& outputs);
[[nodiscard]] DistTensor adaptive_max_pool(const DistTensor& x, const std::vector<std::int64_t>& outputs);

// Over the whole field, which nobody has to hold: every rank gets the result, with size 1 in the tiled dimensions. It
// counts once (see share.h). Collective; moves one number per channel and image.
[[nodiscard]] at::Tensor global_average_pool(const DistTensor& x);
[[nodiscard]] at::Tensor global_max_pool(const DistTensor& x);

}  // namespace weft::spatial
