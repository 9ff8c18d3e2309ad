// send, recv, isend, irecv and sendrecv: self-describing tensors between two ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <source_location>

#include "weft/collective/autograd/pending_operation.h"
#include "weft/mpi/communicator.h"

namespace weft::collective {

// Only the sender and the receiver take part. The receiver sends a gradient back if the sender's tensor requires grad.
// Gradients use the backward channel and a unique tag per message, so messages with equal tags cannot confuse them. The
// backward pass starts to send gradients without blocking and waits for them before it returns.
//
// All throw c10::Error for invalid arguments, and mpi::PeerLost or mpi::TimeoutError if the peer fails or is missing.

// Sends x to rank `dest`. Blocks until the memory of x may be reused.
// Adjoint: receives the gradient from `dest`.
void send(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t dest, std::int64_t tag = 0,
          std::source_location where = std::source_location::current());
// Starts a send and returns it; x must not change until wait() returns.
[[nodiscard]] c10::intrusive_ptr<PendingOperation> isend(const at::Tensor& x, const CommunicatorPtr& comm,
                                                         std::int64_t dest, std::int64_t tag = 0,
                                                         std::source_location where = std::source_location::current());

struct Received {
  at::Tensor tensor;
  std::int64_t source;
  std::int64_t tag;
};

// Receives a tensor. Blocks until it has arrived.
// like: the expected shape and dtype, and the device of the result. Without it: any shape and dtype, on the CPU.
// source, tag: nullopt matches any rank or tag.
// Returns the tensor, its sender and its tag.
// Throws c10::Error if the tensor does not match `like`; other ranks then throw mpi::PeerLost.
// Adjoint: sends the gradient to the sender.
[[nodiscard]] Received recv(const std::optional<at::Tensor>& like, const CommunicatorPtr& comm,
                            std::optional<std::int64_t> source, std::optional<std::int64_t> tag = 0,
                            std::source_location where = std::source_location::current());
// Starts a receive and returns it; wait() returns the tensor.
[[nodiscard]] c10::intrusive_ptr<PendingOperation> irecv(const std::optional<at::Tensor>& like,
                                                         const CommunicatorPtr& comm,
                                                         std::optional<std::int64_t> source,
                                                         std::optional<std::int64_t> tag = 0,
                                                         std::source_location where = std::source_location::current());

// Throws c10::Error or std::invalid_argument unless x can be sent in a message.
void require_message(const at::Tensor& x, const char* operation);
// Like isend and irecv, for other operations of the library: on the given channel of the communicator, where the
// application's messages never match, and without checking the arguments.
[[nodiscard]] c10::intrusive_ptr<PendingOperation> isend_on(mpi::CommView channel, const at::Tensor& x,
                                                            const CommunicatorPtr& comm, std::int64_t dest,
                                                            std::int64_t tag);
[[nodiscard]] c10::intrusive_ptr<PendingOperation> irecv_on(mpi::CommView channel,
                                                            const std::optional<at::Tensor>& like,
                                                            const CommunicatorPtr& comm,
                                                            std::optional<std::int64_t> source,
                                                            std::optional<std::int64_t> tag);

// Sends x to `dest` and receives a tensor from `source` at the same time; never deadlocks.
// Returns the received tensor, on the device of `like` if it is given, otherwise on the device of x.
// Adjoint: the gradients travel in the opposite direction.
[[nodiscard]] at::Tensor sendrecv(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t dest,
                                  std::int64_t source, std::int64_t tag = 0,
                                  const std::optional<at::Tensor>& like = std::nullopt,
                                  std::source_location where = std::source_location::current());

}  // namespace weft::collective
