// gather: the root gets all ranks' tensors, one after the other along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"

namespace weft::collective {

// Collective. Sizes along `dim` may differ between ranks; the other ranks' result has size 0 there. Adjoint: scatter
// of the root's gradient.
[[nodiscard]] at::Tensor gather(const at::Tensor& x, const Comm& comm, std::int64_t dim = 0, std::int64_t root = 0,
                                std::source_location where = std::source_location::current());

}  // namespace weft::collective
