// Isend, Irecv, Send, Recv, Sendrecv and Iallreduce.
//
// In backward a transfer runs the other way: where it was waited for the gradient starts to travel, where it started
// the gradient is waited for. Each message has a number of its own for its gradient, so tags never mix gradients up.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "compat/mpi4torch/handle.h"
#include "weft/collective/operator.h"

namespace mpi4torch {

using weft::collective::Comm;

// `x` must stay unchanged until Wait, which returns its values.
[[nodiscard]] Handle isend(const at::Tensor& x, std::int64_t dest, std::int64_t tag, const Comm& team);
// Wait fills the memory of `buffer` and returns it with a new history. MPI_ANY_SOURCE and MPI_ANY_TAG are allowed: the
// gradient answers the rank that sent.
[[nodiscard]] Handle irecv(const at::Tensor& buffer, std::int64_t source, std::int64_t tag, const Comm& team);

[[nodiscard]] at::Tensor send(const at::Tensor& x, std::int64_t dest, std::int64_t tag, const Comm& team);
[[nodiscard]] at::Tensor recv(const at::Tensor& buffer, std::int64_t source, std::int64_t tag, const Comm& team);
// Returns what arrived; it depends on what was sent, so no dummies are needed.
[[nodiscard]] at::Tensor sendrecv(const at::Tensor& x, std::int64_t dest, std::int64_t send_tag,
                                  const at::Tensor& buffer, std::int64_t source, std::int64_t recv_tag,
                                  const Comm& team);

// Collective. Only MPI_SUM can be differentiated.
[[nodiscard]] Handle iallreduce(const at::Tensor& x, std::int64_t op, const Comm& team);

}  // namespace mpi4torch
