// all_gather: every rank gets all ranks' tensors, one after the other along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"

namespace weft::collective {

// Collective. Sizes along `dim` may differ between ranks, and may be 0. Adjoint: reduce_scatter of the gradient, sum.
[[nodiscard]] at::Tensor all_gather(const at::Tensor& x, const Comm& comm, std::int64_t dim = 0,
                                    std::source_location where = std::source_location::current());

}  // namespace weft::collective
