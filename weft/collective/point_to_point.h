// send, recv, isend, irecv, sendrecv: tensors between two ranks, which say what they carry.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <source_location>

#include "weft/collective/comm.h"
#include "weft/collective/pending.h"

namespace weft::collective {

// Point to point: only sender and receiver take part. Whether a gradient comes back is the sender's tensor's to say;
// it travels on the backward channel under a number of its own, so tags never mix gradients up. Gradients are sent
// without waiting, and waited for at the end of the backward pass.

// Blocks until the tensor may be reused. Adjoint: receive the gradient from `dest`.
void send(const at::Tensor& x, const Comm& comm, std::int64_t dest, std::int64_t tag = 0,
          std::source_location where = std::source_location::current());
[[nodiscard]] c10::intrusive_ptr<Pending> isend(const at::Tensor& x, const Comm& comm, std::int64_t dest,
                                                std::int64_t tag = 0,
                                                std::source_location where = std::source_location::current());

struct Received {
  at::Tensor tensor;
  std::int64_t source;
  std::int64_t tag;
};

// Blocks until a tensor is here. Without source or tag, from anybody or with any tag. `like`, if given, says the shape
// and type expected (a mismatch throws, here and as PeerLost on the others) and the device wanted. Adjoint: send the
// gradient to the rank that the tensor came from.
[[nodiscard]] Received recv(const std::optional<at::Tensor>& like, const Comm& comm, std::optional<std::int64_t> source,
                            std::optional<std::int64_t> tag = 0,
                            std::source_location where = std::source_location::current());
[[nodiscard]] c10::intrusive_ptr<Pending> irecv(const std::optional<at::Tensor>& like, const Comm& comm,
                                                std::optional<std::int64_t> source, std::optional<std::int64_t> tag = 0,
                                                std::source_location where = std::source_location::current());

// Sends and receives at the same time; never deadlocks. Without `like` the result lives where `x` lives.
[[nodiscard]] at::Tensor sendrecv(const at::Tensor& x, const Comm& comm, std::int64_t dest, std::int64_t source,
                                  std::int64_t tag = 0, const std::optional<at::Tensor>& like = std::nullopt,
                                  std::source_location where = std::source_location::current());

}  // namespace weft::collective
