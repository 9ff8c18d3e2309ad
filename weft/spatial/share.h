// Weights that every rank holds a copy of, and results that every rank computes alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// The same tensors, as one operand of all ranks: nothing moves forward; in backward their gradients are summed over the
// ranks, in one message. Collective.
[[nodiscard]] std::vector<at::Tensor> share(const std::vector<at::Tensor>& weights, const Comm& comm,
                                            std::source_location where = std::source_location::current());

// For a tensor that is the same on all ranks, where each will compute the same loss from it: its gradient is divided by
// the number of ranks, so that the sum of all ranks' losses counts that one loss once. No communication.
[[nodiscard]] at::Tensor counted_once(const at::Tensor& x, const Comm& comm);

// This rank's tile of a tensor that all ranks compute alike and go on from in tiles. In backward every rank gets the
// gradient of the whole, from all tiles: what came before goes on counting once. Collective where gradients are wanted.
[[nodiscard]] DistTensor retile(const at::Tensor& whole, const LayoutPtr& layout,
                                std::source_location where = std::source_location::current());

}  // namespace weft::spatial
