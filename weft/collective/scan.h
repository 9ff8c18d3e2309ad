// scan and exscan: rank r gets the reduction over ranks 0 to r, with or without r itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/mpi/communicator.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective.
// x: this rank's tensor; shape and dtype must be equal on all ranks, like `op` and `reverse`.
// reverse: reduce over ranks r to n-1 instead.
// Returns the reduction over this rank and the ranks before it.
// Throws mpi::Disagreement on all ranks if the calls differ or one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint of sum: the scan in the opposite direction; mean divides the gradient by the number of reduced ranks first.
// prod, min and max gather all tensors and use the derivatives of torch's reductions.
[[nodiscard]] at::Tensor scan(const at::Tensor& x, const CommunicatorPtr& comm, mpi::ReduceOp op = mpi::ReduceOp::kSum,
                              bool reverse = false, std::source_location where = std::source_location::current());

// Like scan(), without this rank's own tensor. The first rank gets the neutral element: 0, or 1 for prod, or plus or
// minus infinity for min and max (floating-point types only).
[[nodiscard]] at::Tensor exscan(const at::Tensor& x, const CommunicatorPtr& comm,
                                mpi::ReduceOp op = mpi::ReduceOp::kSum, bool reverse = false,
                                std::source_location where = std::source_location::current());

}  // namespace weft::collective
