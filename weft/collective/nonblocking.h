// iall_reduce, iall_gather and ibroadcast: start a collective that wait() completes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/collective/autograd/pending_operation.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// The ranks agree on the call when they start it, so the start waits for the slowest rank; the data then moves while
// the caller computes. The tensor must not change until wait() returns. Ranks may wait in different orders. Backward
// runs the adjoints in the reverse order of the starts; an adjoint starts once its gradient is known and its turn has
// come, and completes at the position of the start, so it overlaps as well.
//
// Forward-mode derivatives and the transforms of torch.func are rejected on all ranks.
//
// All are collective, take the arguments of their blocking counterparts and throw the same exceptions.
// Each returns the pending operation; pass it to wait() exactly once for the result.

// Adjoint: iall_reduce. Only sum and mean are differentiable: for other reductions, all ranks throw if x requires grad.
[[nodiscard]] c10::intrusive_ptr<PendingOperation> iall_reduce(
    const at::Tensor& x, const CommunicatorPtr& comm, mpi::ReduceOp op = mpi::ReduceOp::kSum,
    std::source_location where = std::source_location::current());
// Adjoint: reduce_scatter with sum, which blocks.
[[nodiscard]] c10::intrusive_ptr<PendingOperation> iall_gather(
    const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t dim = 0,
    std::source_location where = std::source_location::current());
// Adjoint: reduce to the root with sum, which blocks.
[[nodiscard]] c10::intrusive_ptr<PendingOperation> ibroadcast(
    const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t root = 0,
    std::source_location where = std::source_location::current());

}  // namespace weft::collective
