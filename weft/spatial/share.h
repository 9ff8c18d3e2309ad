// Weights that every rank holds a copy of, and results that every rank computes equally.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Returns the same tensors as operands shared by all ranks: forward moves nothing; backward sums their gradients over
// the ranks in one message. Collective.
[[nodiscard]] std::vector<at::Tensor> share(const std::vector<at::Tensor>& weights, const CommunicatorPtr& comm,
                                            std::source_location where = std::source_location::current());

// Returns the weight, or an empty tensor of its shape on the meta device if `x` is on it.
[[nodiscard]] at::Tensor matching(const at::Tensor& weight, const at::Tensor& x);

// A weight and a bias, each of which may be absent.
struct Affine {
  OptionalTensor weight;
  OptionalTensor bias;
};
// Shares both in one message, as operands for the tiles `x`, which may be on the meta device. Collective.
[[nodiscard]] Affine share(const OptionalTensor& weight, const OptionalTensor& bias, const DistTensor& x);

// Returns `x`, which is the same on all ranks, for a loss that every rank computes equally. Divides the gradient by the
// number of ranks, so that the loss counts once in the sum of all ranks' losses. No communication.
[[nodiscard]] at::Tensor counted_once(const at::Tensor& x, const CommunicatorPtr& comm);

// Returns this rank's tile of a tensor that all ranks compute equally. In backward every rank gets the gradient of the
// whole tensor from all tiles, so that earlier layers still count once. Collective if gradients are required.
[[nodiscard]] DistTensor retile(const at::Tensor& whole, const LayoutPtr& layout,
                                std::source_location where = std::source_location::current());

}  // namespace weft::spatial
