// reduce_scatter: the reduction of all ranks' tensors, of which each rank keeps its piece along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective. Without `sizes` the dimension is split evenly, remainder to the first ranks. Adjoint of sum: all_gather
// of the gradients; mean divides by n; prod, min and max go through all_to_all and torch's own reductions.
[[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& x, const Comm& comm, mpi::ReduceOp op = mpi::ReduceOp::kSum,
                                        std::int64_t dim = 0, at::OptionalIntArrayRef sizes = std::nullopt,
                                        std::source_location where = std::source_location::current());

}  // namespace weft::collective
