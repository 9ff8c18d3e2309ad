// One tensor from rank to rank, with nothing of autograd: what the differentiable operations send and receive.
//
// Label and elements travel as one MPI message, and the receive knows its memory when it is posted. So a message moves
// while its receiver waits in something else: Irecv, Send, Wait in a ring does not block, as MPI promises.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "weft/collective/operator.h"
#include "weft/mpi/parcel.h"
#include "weft/mpi/request.h"

namespace mpi4torch {

using weft::collective::Comm;

// A gradient (a message of the backward direction) is followed by an empty synchronous message: it is delivered only
// when the other rank has asked for the gradient, so none is ever lost unnoticed.
class OutgoingMessage {
 public:
  OutgoingMessage(const at::Tensor& x, Comm team, std::int64_t dest, std::int64_t tag, std::int64_t gradient_tag,
                  bool wants_grad);
  // Blocks until the memory may be reused and, for a gradient, the other rank has it.
  void wait();

 private:
  Comm team_;
  int dest_;
  weft::mpi::Direction direction_;
  weft::mpi::Request request_;
};

class IncomingMessage {
 public:
  // Posts a receive into the memory of `buffer`, whatever its strides. MPI_ANY_SOURCE and MPI_ANY_TAG are allowed.
  IncomingMessage(const at::Tensor& buffer, Comm team, std::int64_t source, std::int64_t tag);
  ~IncomingMessage();
  IncomingMessage(const IncomingMessage&) = delete;
  IncomingMessage& operator=(const IncomingMessage&) = delete;

  // Blocks until the message is there. Type and number of elements must be the sender's: if not, this rank throws and
  // alarms the others.
  const weft::mpi::Label& wait();
  [[nodiscard]] int source() const noexcept { return source_; }

 private:
  struct Memory;  // what MPI writes into
  bool arrived();
  void require_fitting() const;
  void confirm() const;

  at::Tensor buffer_;
  Comm team_;
  weft::mpi::Direction direction_;
  int source_;
  int tag_;
  std::shared_ptr<Memory> memory_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace mpi4torch
