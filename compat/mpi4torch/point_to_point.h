// Isend, Irecv, Send, Recv, Sendrecv and Iallreduce.
//
// In backward a transfer runs in the opposite direction: the gradient's transfer starts where forward called Wait and
// completes where forward started the transfer. Each message has a unique tag for its gradient, so equal tags never mix
// gradients up.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "compat/mpi4torch/handle.h"
#include "weft/mpi/communicator.h"

namespace mpi4torch {

using weft::CommunicatorPtr;

// x must not change until Wait, which returns its values.
[[nodiscard]] Handle isend(const at::Tensor& x, std::int64_t dest, std::int64_t tag,
                           const CommunicatorPtr& communicator);
// Wait fills the memory of `buffer` and returns it with a new autograd history. MPI_ANY_SOURCE and MPI_ANY_TAG are
// allowed: the gradient goes to the actual sender.
[[nodiscard]] Handle irecv(const at::Tensor& buffer, std::int64_t source, std::int64_t tag,
                           const CommunicatorPtr& communicator);

[[nodiscard]] at::Tensor send(const at::Tensor& x, std::int64_t dest, std::int64_t tag,
                              const CommunicatorPtr& communicator);
[[nodiscard]] at::Tensor recv(const at::Tensor& buffer, std::int64_t source, std::int64_t tag,
                              const CommunicatorPtr& communicator);
// Returns the received tensor. It depends on the sent tensor, so no dummies are necessary.
[[nodiscard]] at::Tensor sendrecv(const at::Tensor& x, std::int64_t dest, std::int64_t send_tag,
                                  const at::Tensor& buffer, std::int64_t source, std::int64_t recv_tag,
                                  const CommunicatorPtr& communicator);

// Collective. Only MPI_SUM is differentiable.
[[nodiscard]] Handle iallreduce(const at::Tensor& x, std::int64_t op, const CommunicatorPtr& communicator);

}  // namespace mpi4torch
