// reduce: the root gets the reduction of all ranks' tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/mpi/communicator.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective.
// x: this rank's tensor; shape and dtype must be equal on all ranks, like `op` and `root`.
// Returns the reduction on the root; zeros on other ranks.
// Throws mpi::Disagreement on all ranks if the calls differ or one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: broadcast of the root's gradient for sum, divided by n for mean. prod, min and max gather to the root and
// use the derivatives of torch's reductions.
[[nodiscard]] at::Tensor reduce(const at::Tensor& x, const CommunicatorPtr& comm,
                                mpi::ReduceOp op = mpi::ReduceOp::kSum, std::int64_t root = 0,
                                std::source_location where = std::source_location::current());

}  // namespace weft::collective
