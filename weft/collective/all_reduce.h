// all_reduce: every rank gets the reduction of all ranks' tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/mpi/communicator.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective.
// x: this rank's tensor; shape and dtype must be equal on all ranks. op: the reduction; must be equal on all ranks.
// Returns the reduction in a new tensor.
// Throws mpi::Disagreement on all ranks if the calls differ or one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint, with G = all_reduce(gradient, sum): G for sum; G/n for mean; G times the product of the other ranks' values
// for prod; an equal share of G for each rank that holds the extremum for min and max. Other reductions have no
// derivative.
[[nodiscard]] at::Tensor all_reduce(const at::Tensor& x, const CommunicatorPtr& comm,
                                    mpi::ReduceOp op = mpi::ReduceOp::kSum,
                                    std::source_location where = std::source_location::current());

}  // namespace weft::collective
