// Normalization of tiles with the statistics of the whole field.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Weights must be the same on all ranks. All functions are collective and move two numbers per statistic and rank in
// one all_gather; batch_norm with running statistics moves nothing. `average` is the weight of the new statistics in
// the running ones, which every rank updates alike.
[[nodiscard]] DistTensor batch_norm(const DistTensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                    const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                    bool training, double average, double eps);

// Uses the statistics of each image and group of channels. groups = channels is instance normalization.
[[nodiscard]] DistTensor group_norm(const DistTensor& x, std::int64_t groups, const OptionalTensor& weight,
                                    const OptionalTensor& bias, double eps);

// Normalizes over the last dimensions, which must include all tiled ones. Weights have that global shape.
[[nodiscard]] DistTensor layer_norm(const DistTensor& x, const Sizes& shape, const OptionalTensor& weight,
                                    const OptionalTensor& bias, double eps);

}  // namespace weft::spatial
