// Sends and receives of one tensor, without autograd.
//
// Label and elements are one MPI message, and a posted receive already has its memory. MPI can therefore complete a
// receive while the receiver waits in another call: a ring of Irecv, Send and Wait does not deadlock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "weft/mpi/communicator.h"
#include "weft/mpi/message/parcel.h"
#include "weft/mpi/request.h"

namespace mpi4torch {

using weft::CommunicatorPtr;

// An empty synchronous message follows each gradient (a message of the backward direction). It completes only when the
// other rank receives the gradient, so a missing receive is detected.
class OutgoingMessage {
 public:
  OutgoingMessage(const at::Tensor& x, CommunicatorPtr communicator, std::int64_t dest, std::int64_t tag,
                  std::int64_t gradient_tag, bool wants_grad);
  // Blocks until the memory may be reused and, for a gradient, until the other rank has received it.
  void wait();

 private:
  CommunicatorPtr communicator_;
  int dest_;
  weft::mpi::Direction direction_;
  weft::mpi::Request request_;
};

class IncomingMessage {
 public:
  // Posts a receive into `buffer`, which may be non-contiguous. MPI_ANY_SOURCE and MPI_ANY_TAG are allowed.
  IncomingMessage(const at::Tensor& buffer, CommunicatorPtr communicator, std::int64_t source, std::int64_t tag);
  ~IncomingMessage();
  IncomingMessage(const IncomingMessage&) = delete;
  IncomingMessage& operator=(const IncomingMessage&) = delete;

  // Blocks until the message arrives. Throws and raises an alarm on the other ranks if dtype or size do not match.
  const weft::mpi::Label& wait();
  [[nodiscard]] int source() const noexcept { return source_; }

 private:
  struct Memory;  // the memory that MPI writes
  bool arrived();
  void require_match() const;
  void confirm() const;

  at::Tensor buffer_;
  CommunicatorPtr communicator_;
  weft::mpi::Direction direction_;
  int source_;
  int tag_;
  std::shared_ptr<Memory> memory_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace mpi4torch
