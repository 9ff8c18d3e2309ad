// Pooling to a given number of outputs, and over the whole field.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Pools to `outputs` cells in each dimension, in balanced tiles. Collective.
[[nodiscard]] DistTensor adaptive_average_pool(const DistTensor& x, const Sizes& outputs);
[[nodiscard]] DistTensor adaptive_max_pool(const DistTensor& x, const Sizes& outputs);

// Pools the whole field without gathering it. Every rank gets the result, with size 1 in the tiled dimensions. The
// gradient counts once (see share.h). Collective; moves one number per channel and image.
[[nodiscard]] at::Tensor global_average_pool(const DistTensor& x);
[[nodiscard]] at::Tensor global_max_pool(const DistTensor& x);

}  // namespace weft::spatial
