// The differentiable exchange between tiles, and its adjoint. Collective over the plan's ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/spatial/halo_plan.h"

namespace weft::spatial {

// The box that this rank needs, out of the ranks' tiles; `fill` where it lies outside of the field. Moves what the plan
// lists between the ranks that own and need. Adjoint: halo_accumulate.
[[nodiscard]] at::Tensor halo_exchange(const at::Tensor& x, const HaloPlanPtr& plan, double fill = 0,
                                       std::source_location where = std::source_location::current());

// The tile, as the sum of what all ranks' needed boxes hold for its cells; what lies outside of the field is dropped.
// Adjoint: halo_exchange with fill 0.
[[nodiscard]] at::Tensor halo_accumulate(const at::Tensor& g, const HaloPlanPtr& plan,
                                         std::source_location where = std::source_location::current());

// The ranks agree on a call that exchanges by `plan`, whose tensor here has the sizes of `box`; returns the tag of its
// messages. Collective.
[[nodiscard]] int agree_on_exchange(const char* name, const at::Tensor& x, const HaloPlan& plan,
                                    const partition::Box& box);

}  // namespace weft::spatial
