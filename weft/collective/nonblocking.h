// Non-blocking all_reduce, all_gather and broadcast; wait() gives the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"
#include "weft/collective/pending.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

// Collective. The ranks agree on the call when they start it, so starting waits for the slowest rank to start; the
// payload then moves while the caller computes. In backward the adjoint starts where wait() stood and ends where the
// operation started, so the overlap exists there too. Sum and mean only; the tensor must stay unchanged until wait().
[[nodiscard]] c10::intrusive_ptr<Pending> iall_reduce(const at::Tensor& x, const Comm& comm,
                                                      mpi::ReduceOp op = mpi::ReduceOp::kSum,
                                                      std::source_location where = std::source_location::current());
[[nodiscard]] c10::intrusive_ptr<Pending> iall_gather(const at::Tensor& x, const Comm& comm, std::int64_t dim = 0,
                                                      std::source_location where = std::source_location::current());
[[nodiscard]] c10::intrusive_ptr<Pending> ibroadcast(const at::Tensor& x, const Comm& comm, std::int64_t root = 0,
                                                     std::source_location where = std::source_location::current());

}  // namespace weft::collective
