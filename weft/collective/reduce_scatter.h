// reduce_scatter: every rank gets its piece, along a dimension, of the reduction of all ranks' tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/mpi/communicator.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective.
// x: this rank's tensor; shape and dtype must be equal on all ranks, like `op` and `dim`.
// sizes: one piece size per rank, equal on all ranks. Default: a balanced split, larger pieces first.
// Returns this rank's piece of the reduction.
// Throws mpi::Disagreement on all ranks if the calls differ or one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: all_gather of the gradients for sum, divided by n for mean. prod, min and max use all_to_all and the
// derivatives of torch's reductions.
[[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& x, const CommunicatorPtr& comm,
                                        mpi::ReduceOp op = mpi::ReduceOp::kSum, std::int64_t dim = 0,
                                        at::OptionalIntArrayRef sizes = std::nullopt,
                                        std::source_location where = std::source_location::current());

}  // namespace weft::collective
