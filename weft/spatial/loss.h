// Losses and sums over a whole field in tiles. Every rank gets the same result, whose gradient counts once (share.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Sum and mean of all ranks' values. Collective.
[[nodiscard]] at::Tensor sum(const DistTensor& x);
[[nodiscard]] at::Tensor mean(const DistTensor& x);

// Cross entropy of dense classification: logits [batch, classes, ...] and this rank's tile of the targets, class
// numbers [batch, ...]. The mean is over all cells that are not ignored, weighted by class like torch's. Collective.
[[nodiscard]] at::Tensor cross_entropy(const DistTensor& logits, const at::Tensor& target,
                                       const OptionalTensor& class_weights = std::nullopt, bool mean = true,
                                       std::int64_t ignore_index = -100, double label_smoothing = 0);

}  // namespace weft::spatial
