// The differentiable exchange between tiles, and its adjoint. Collective over the plan's ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/spatial/exchange/halo_plan.h"

namespace weft::spatial {

// Returns the box that this rank needs, assembled from the ranks' tiles. Cells outside the field have the value `fill`.
// Adjoint: halo_accumulate.
[[nodiscard]] at::Tensor halo_exchange(const at::Tensor& x, const HaloPlanPtr& plan, double fill = 0,
                                       std::source_location where = std::source_location::current());

// Returns the tile as the sum over all ranks' needed boxes. Drops cells outside the field.
// Adjoint: halo_exchange with fill 0.
[[nodiscard]] at::Tensor halo_accumulate(const at::Tensor& g, const HaloPlanPtr& plan,
                                         std::source_location where = std::source_location::current());

// Lets the ranks agree on an exchange by `plan` of a tensor with the sizes of `box`. Returns the tag of its messages.
// Collective.
[[nodiscard]] int agree_on_exchange(const char* name, const at::Tensor& x, const HaloPlan& plan,
                                    const partition::Box& box);

}  // namespace weft::spatial
