// scatter: each rank gets its piece of the root's tensor along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"

namespace weft::collective {

// Collective. The root decides type, shape and sizes (an even split without `sizes`, remainder to the first ranks);
// what the other ranks pass only says on which device they want their piece. Adjoint: gather to the root; the other
// ranks' inputs get zeros.
[[nodiscard]] at::Tensor scatter(const at::Tensor& x, const Comm& comm, std::int64_t dim = 0, std::int64_t root = 0,
                                 at::OptionalIntArrayRef sizes = std::nullopt,
                                 std::source_location where = std::source_location::current());

}  // namespace weft::collective
