#include "compat/mpi4torch/message.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <vector>

#include "weft/collective/autograd/node.h"
#include "weft/collective/pool.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/chunks.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::mpi::check;
using weft::mpi::Direction;
using weft::mpi::Label;

// An MPI datatype that combines a label and a tensor's memory, with absolute addresses.
class JointType {
 public:
  JointType(const Label* label, const void* data, std::int64_t bytes) {
    add(label, sizeof *label);
    weft::mpi::for_each_chunk(bytes, [&](std::int64_t first, int count) { add(weft::mpi::at(data, first, 1), count); });
    const std::vector<MPI_Datatype> types(lengths_.size(), MPI_BYTE);
    check(MPI_Type_create_struct(static_cast<int>(lengths_.size()), lengths_.data(), places_.data(), types.data(),
                                 &type_),
          "MPI_Type_create_struct");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~JointType() { MPI_Type_free(&type_); }  // MPI keeps it until pending transfers complete
  JointType(const JointType&) = delete;
  JointType& operator=(const JointType&) = delete;

  [[nodiscard]] MPI_Datatype get() const noexcept { return type_; }

 private:
  void add(const void* place, int length) {
    if (length == 0) return;
    lengths_.push_back(length);
    check(MPI_Get_address(place, &places_.emplace_back()), "MPI_Get_address");
  }

  std::vector<int> lengths_;
  std::vector<MPI_Aint> places_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

weft::mpi::CommView channel_of(const weft::Communicator& communicator, Direction direction) {
  return direction == Direction::kForward ? communicator.messages() : communicator.channel(direction);
}

Label label_of(const Tensor& x) {
  auto label =
      weft::mpi::label_for(weft::collective::datatype_of(x.scalar_type()), {x.sizes().data(), x.sizes().size()});
  label.inlined = true;
  return label;
}

std::string missing_receive(const void* dest) {
  return ", rank " + std::to_string(*static_cast<const int*>(dest)) +
         " does not receive the gradient of a tensor that it sent: its loss depends neither on the handle of that "
         "Isend nor on the result of Wait or Send. Join them with JoinDummies";
}

std::string missing_message(const void* source) {
  const int rank = *static_cast<const int*>(source);
  return rank == MPI_ANY_SOURCE ? ", no message arrived from any rank"
                                : ", no message arrived from rank " + std::to_string(rank);
}

}  // namespace

OutgoingMessage::OutgoingMessage(const Tensor& x, CommunicatorPtr communicator, std::int64_t dest, std::int64_t tag,
                                 std::int64_t gradient_tag, bool wants_grad)
    : communicator_(std::move(communicator)),
      dest_(static_cast<int>(dest)),
      direction_(weft::collective::current_direction()) {
  struct Held {
    Label label;
    Tensor data;
  };
  auto held = std::make_shared<Held>(Held{label_of(x), weft::collective::readable(x.detach().to(at::kCPU))});
  held->label.wants_grad = wants_grad;
  held->label.gradient_tag = gradient_tag;
  const JointType type(&held->label, held->data.const_data_ptr(), held->label.bytes);
  request_ = weft::mpi::Request(held);
  communicator_->add_contact(dest_);
  const MPI_Comm channel = channel_of(*communicator_, direction_).handle();
  const int number = static_cast<int>(tag);
  check(MPI_Isend(MPI_BOTTOM, 1, type.get(), dest_, number, channel, request_.add()), "MPI_Isend", channel);
  if (direction_ == Direction::kForward) return;
  check(MPI_Issend(nullptr, 0, MPI_BYTE, dest_, number, channel, request_.add()), "MPI_Issend", channel);
}

void OutgoingMessage::wait() {
  if (direction_ == Direction::kForward) {
    request_.wait({.operation = "Isend", .communicator = communicator_.get()});
    return;
  }
  try {
    request_.wait({.operation = "sending a gradient",
                   .communicator = communicator_.get(),
                   .explain = missing_receive,
                   .subject = &dest_});
  } catch (const weft::mpi::TimeoutError& error) {
    communicator_->raise_alarm(error.what());
    throw;
  }
}

struct IncomingMessage::Memory {
  Label label;
  Tensor data;  // the buffer itself, or contiguous host memory
};

IncomingMessage::IncomingMessage(const Tensor& buffer, CommunicatorPtr communicator, std::int64_t source,
                                 std::int64_t tag)
    : buffer_(buffer),
      communicator_(std::move(communicator)),
      direction_(weft::collective::current_direction()),
      source_(static_cast<int>(source)),
      tag_(static_cast<int>(tag)) {
  const bool direct = buffer.device().is_cpu() && buffer.is_contiguous();
  memory_ = std::make_shared<Memory>(
      Memory{{}, direct ? buffer : weft::collective::pooled_empty(buffer.sizes(), buffer.scalar_type())});
  const JointType type(&memory_->label, memory_->data.const_data_ptr(), label_of(buffer).bytes);
  const MPI_Comm channel = channel_of(*communicator_, direction_).handle();
  check(MPI_Irecv(MPI_BOTTOM, 1, type.get(), source_, tag_, channel, &request_), "MPI_Irecv", channel);
}

// A dropped handle must neither match a later message nor wait for a sender that may have failed. If MPI cannot cancel
// the receive any more, the abandoned Request keeps the memory alive.
IncomingMessage::~IncomingMessage() {
  if (request_ == MPI_REQUEST_NULL || !weft::mpi::Environment::alive()) return;
  MPI_Cancel(&request_);
  weft::mpi::Request abandoned(memory_);
  *abandoned.add() = request_;
}

bool IncomingMessage::arrived() {
  int flag = 0;
  MPI_Status status;
  const int rc = MPI_Test(&request_, &flag, &status);
  int kind = MPI_SUCCESS;
  if (rc != MPI_SUCCESS) MPI_Error_class(rc, &kind);
  // A truncated message contains its label, which require_match() uses for the error message.
  if (kind != MPI_ERR_TRUNCATE) check(rc, "MPI_Test", channel_of(*communicator_, direction_).handle());
  if (flag == 0 && kind == MPI_SUCCESS) return false;
  source_ = status.MPI_SOURCE;
  tag_ = status.MPI_TAG;
  return true;
}

const Label& IncomingMessage::wait() {
  weft::mpi::Waiter waiter(
      {.operation = "Irecv", .communicator = communicator_.get(), .explain = missing_message, .subject = &source_});
  while (!arrived()) waiter.idle();
  require_match();
  buffer_.unsafeGetTensorImpl()->bump_version();
  if (!memory_->data.is_same(buffer_)) {
    const at::NoGradGuard no_grad;
    buffer_.copy_(memory_->data);
  }
  if (direction_ == Direction::kBackward) confirm();
  return memory_->label;
}

void IncomingMessage::require_match() const {
  const Label expected = label_of(buffer_);
  const Label& label = memory_->label;
  if (label.magic == expected.magic && label.inlined && label.type == expected.type && label.bytes == expected.bytes) {
    return;
  }
  const std::string sent = label.magic == expected.magic ? label.describe() : "a message in an unknown format";
  const std::string text = "rank " + std::to_string(communicator_->rank()) + " receives into " +
                           weft::collective::describe(buffer_) + ", but rank " + std::to_string(source_) + " sent " +
                           sent;
  communicator_->raise_alarm(text);
  TORCH_CHECK(false, "mpi4torch: ", text);
}

void IncomingMessage::confirm() const {
  const MPI_Comm channel = channel_of(*communicator_, direction_).handle();
  weft::mpi::Request request;
  check(MPI_Irecv(nullptr, 0, MPI_BYTE, source_, tag_, channel, request.add()), "MPI_Irecv", channel);
  request.wait({.operation = "receiving a gradient", .communicator = communicator_.get()});
}

}  // namespace mpi4torch
