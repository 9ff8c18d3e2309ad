// all_reduce: every rank gets the reduction of all ranks' tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective. Shapes and types must be equal on all ranks. Adjoint: with G = all_reduce(g, sum), sum gives G, mean
// G/n, prod G times the product of the other ranks' values, min and max an equal share of G to each winner.
[[nodiscard]] at::Tensor all_reduce(const at::Tensor& x, const Comm& comm, mpi::ReduceOp op = mpi::ReduceOp::kSum,
                                    std::source_location where = std::source_location::current());

}  // namespace weft::collective
