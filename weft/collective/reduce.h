// reduce: the root gets the reduction of all ranks' tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective. The other ranks get zeros. Adjoint of sum: broadcast of the root's gradient; mean divides by n; prod, min
// and max gather to the root and use torch's own reductions.
[[nodiscard]] at::Tensor reduce(const at::Tensor& x, const Comm& comm, mpi::ReduceOp op = mpi::ReduceOp::kSum,
                                std::int64_t root = 0, std::source_location where = std::source_location::current());

}  // namespace weft::collective
