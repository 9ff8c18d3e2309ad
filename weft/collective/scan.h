// scan and exscan: rank r gets the reduction over the ranks up to (and with, or without) itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective. Shapes and types must be equal on all ranks; `reverse` counts the ranks from the last one. Adjoint of
// sum: the scan in the other direction; mean weighs by the number of ranks reduced; prod, min and max gather all
// tensors and use torch's own reductions.
[[nodiscard]] at::Tensor scan(const at::Tensor& x, const Comm& comm, mpi::ReduceOp op = mpi::ReduceOp::kSum,
                              bool reverse = false, std::source_location where = std::source_location::current());

// As scan, without the rank itself. The first rank gets what reducing nothing gives: 0, 1 for prod, infinity for min,
// minus infinity for max (floating types only).
[[nodiscard]] at::Tensor exscan(const at::Tensor& x, const Comm& comm, mpi::ReduceOp op = mpi::ReduceOp::kSum,
                                bool reverse = false, std::source_location where = std::source_location::current());

}  // namespace weft::collective
