// Filters with weights of their own at every place, and the decoder that goes back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// How the outputs of such a filter over `inputs` are tiled: this rank's weights are
// [channels out, its tile of outputs..., channels in, kernel...].
[[nodiscard]] LayoutPtr local_filter_outputs(const LayoutPtr& inputs, const std::vector<std::int64_t>& kernel,
                                             const std::vector<std::int64_t>& stride,
                                             const std::vector<std::int64_t>& padding);

// Weights belong to places, so each rank holds only those of its tile and no gradients are summed. Collective.
[[nodiscard]] DistTensor local_filter(const DistTensor& x, const at::Tensor& weight,
                                      const std::vector<std::int64_t>& stride,
                                      const std::vector<std::int64_t>& padding);

// From outputs back to the field that `inputs` describes, with weights like the filter's: the filter's transpose. What
// falls onto cells of other ranks is added there. Collective.
[[nodiscard]] DistTensor local_defilter(const DistTensor& y, const at::Tensor& weight, const LayoutPtr& inputs,
                                        const std::vector<std::int64_t>& stride,
                                        const std::vector<std::int64_t>& padding);

}  // namespace weft::spatial
