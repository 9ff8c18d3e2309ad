// Filters with separate weights at every position, and their decoder.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Returns the tiles of the outputs of a filter over `inputs`. This rank's weights are
// [channels out, its tile of outputs..., channels in, kernel...].
[[nodiscard]] LayoutPtr local_filter_outputs(const LayoutPtr& inputs, const Sizes& kernel, const Sizes& stride,
                                             const Sizes& padding);

// Applies the filter. Each rank holds only the weights of its tile, so gradients are not summed. Collective.
[[nodiscard]] DistTensor local_filter(const DistTensor& x, const at::Tensor& weight, const Sizes& stride,
                                      const Sizes& padding);

// Applies the transpose of a filter: from outputs back to the field `inputs`, with weights of the filter's shape. Each
// rank adds the shares that other ranks computed for its cells. Collective.
[[nodiscard]] DistTensor local_defilter(const DistTensor& y, const at::Tensor& weight, const LayoutPtr& inputs,
                                        const Sizes& stride, const Sizes& padding);

}  // namespace weft::spatial
