// The reductions by mpi4torch's numbers, and the operations that reduce.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/collective/operator.h"
#include "weft/mpi/reduce_op.h"

namespace mpi4torch {

using weft::collective::Comm;

// All collective. `op` counts from MPI_MAX = 0 to MPI_MAXLOC = 11. Sum, product, minimum and maximum can be
// differentiated; backward through the others throws.
[[nodiscard]] at::Tensor allreduce(const at::Tensor& x, std::int64_t op, const Comm& team);
// In place: the root's memory holds the result, everybody else's zeros.
[[nodiscard]] at::Tensor reduce_in_place(const at::Tensor& x, std::int64_t op, std::int64_t root, const Comm& team);
[[nodiscard]] at::Tensor broadcast_in_place(const at::Tensor& x, std::int64_t root, const Comm& team);
// `numelem` may differ between ranks: how much of the reduced tensor this one keeps.
[[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t op, std::int64_t axis, std::int64_t numelem,
                                        const Comm& team);
[[nodiscard]] at::Tensor scan(const at::Tensor& x, std::int64_t op, const Comm& team);

// Throws on all ranks, before anything is sent, for a number that names no reduction of single values.
[[nodiscard]] weft::mpi::ReduceOp reduction(std::int64_t op, const char* name, const Comm& team);

}  // namespace mpi4torch
