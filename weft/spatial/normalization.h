// Normalisation with the statistics of the whole field, of which every rank holds a tile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

using OptionalTensor = std::optional<at::Tensor>;

// Weights are the same on all ranks. Each moves two numbers per statistic and rank, in one all_gather; none where the
// running statistics are used. Collective. `average` is the weight of the new statistics in the running ones, which are
// updated on every rank alike.
[[nodiscard]] DistTensor batch_norm(const DistTensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                    const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                    bool training, double average, double eps);

// Statistics of each image and group of channels; groups = channels is instance normalisation.
[[nodiscard]] DistTensor group_norm(const DistTensor& x, std::int64_t groups, const OptionalTensor& weight,
                                    const OptionalTensor& bias, double eps);

// Over the last dimensions, which must include all tiled ones. Weights have that (global) shape.
[[nodiscard]] DistTensor layer_norm(const DistTensor& x, const std::vector<std::int64_t>& shape,
                                    const OptionalTensor& weight, const OptionalTensor& bias, double eps);

}  // namespace weft::spatial
