// mpi4torch's operations that reduce, and its numbers of reductions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/mpi/communicator.h"
#include "weft/mpi/reduce_op.h"

namespace mpi4torch {

using weft::CommunicatorPtr;

// All are collective. op: from MPI_MAX = 0 to MPI_MAXLOC = 11. Sum, product, minimum and maximum are differentiable;
// backward through others throws.
[[nodiscard]] at::Tensor allreduce(const at::Tensor& x, std::int64_t op, const CommunicatorPtr& communicator);
// Writes the result to the memory of x on the root, and zeros on other ranks.
[[nodiscard]] at::Tensor reduce_in_place(const at::Tensor& x, std::int64_t op, std::int64_t root,
                                         const CommunicatorPtr& communicator);
[[nodiscard]] at::Tensor broadcast_in_place(const at::Tensor& x, std::int64_t root,
                                            const CommunicatorPtr& communicator);
// numelem: the size of this rank's piece of the result; may differ between ranks.
[[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t op, std::int64_t axis, std::int64_t numelem,
                                        const CommunicatorPtr& communicator);
[[nodiscard]] at::Tensor scan(const at::Tensor& x, std::int64_t op, const CommunicatorPtr& communicator);

// Collective. Throws on all ranks if `op` is unknown or reduces pairs.
[[nodiscard]] weft::mpi::ReduceOp reduction(std::int64_t op, const char* name, const CommunicatorPtr& communicator);

}  // namespace mpi4torch
