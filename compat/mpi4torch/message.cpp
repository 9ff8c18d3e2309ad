#include "compat/mpi4torch/message.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <vector>

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

// A label and a tensor's memory, wherever they lie, as one MPI type relative to MPI_BOTTOM.
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
  ~JointType() { MPI_Type_free(&type_); }  // transfers under way keep what they need of it
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

Label label_of(const Tensor& x) {
  auto label =
      weft::mpi::label_for(weft::collective::datatype_of(x.scalar_type()), {x.sizes().data(), x.sizes().size()});
  label.inlined = true;
  return label;
}

std::string not_asked_for(const void* dest) {
  return ", rank " + std::to_string(*static_cast<const int*>(dest)) +
         " does not ask for the gradient of a tensor that it sent: its loss does not depend on the handle of that "
         "Isend, "
         "or on what Wait or Send returned. Join them with JoinDummies";
}

std::string nothing_came(const void* source) {
  const int rank = *static_cast<const int*>(source);
  return rank == MPI_ANY_SOURCE ? ", nothing came from any rank" : ", nothing came from rank " + std::to_string(rank);
}

}  // namespace

OutgoingMessage::OutgoingMessage(const Tensor& x, Comm team, std::int64_t dest, std::int64_t tag,
                                 std::int64_t gradient_tag, bool wants_grad)
    : team_(std::move(team)), dest_(static_cast<int>(dest)), direction_(weft::collective::current_direction()) {
  struct Held {
    Label label;
    Tensor data;
  };
  auto held = std::make_shared<Held>(Held{label_of(x), weft::collective::readable(x.detach().to(at::kCPU))});
  held->label.wants_grad = wants_grad;
  held->label.gradient_tag = gradient_tag;
  const JointType type(&held->label, held->data.const_data_ptr(), held->label.bytes);
  request_ = weft::mpi::Request(held);
  const MPI_Comm channel = team_->channel(direction_).handle();
  const int number = static_cast<int>(tag);
  check(MPI_Isend(MPI_BOTTOM, 1, type.get(), dest_, number, channel, request_.add()), "MPI_Isend", channel);
  if (direction_ == Direction::kForward) return;
  check(MPI_Issend(nullptr, 0, MPI_BYTE, dest_, number, channel, request_.add()), "MPI_Issend", channel);
}

void OutgoingMessage::wait() {
  if (direction_ == Direction::kForward) {
    request_.wait({.operation = "Isend", .team = team_.get()});
    return;
  }
  try {
    request_.wait(
        {.operation = "sending a gradient", .team = team_.get(), .explain = not_asked_for, .subject = &dest_});
  } catch (const weft::mpi::TimeoutError& error) {
    team_->raise_alarm(error.what());
    throw;
  }
}

struct IncomingMessage::Memory {
  Label label;
  Tensor data;  // the buffer itself, or contiguous host memory in its place
};

IncomingMessage::IncomingMessage(const Tensor& buffer, Comm team, std::int64_t source, std::int64_t tag)
    : buffer_(buffer),
      team_(std::move(team)),
      direction_(weft::collective::current_direction()),
      source_(static_cast<int>(source)),
      tag_(static_cast<int>(tag)) {
  const bool direct = buffer.device().is_cpu() && buffer.is_contiguous();
  memory_ = std::make_shared<Memory>(
      Memory{{}, direct ? buffer : weft::collective::pooled_empty(buffer.sizes(), buffer.scalar_type())});
  const JointType type(&memory_->label, memory_->data.const_data_ptr(), label_of(buffer).bytes);
  const MPI_Comm channel = team_->channel(direction_).handle();
  check(MPI_Irecv(MPI_BOTTOM, 1, type.get(), source_, tag_, channel, &request_), "MPI_Irecv", channel);
}

// A handle that nobody waits for must not take a later message, nor wait for a sender that may be gone: what cannot be
// cancelled any more is left to the Request's graveyard, with the memory that MPI writes into.
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
  // A longer message than expected still brings its label, from which require_fitting() says what is wrong.
  if (kind != MPI_ERR_TRUNCATE) check(rc, "MPI_Test", team_->channel(direction_).handle());
  if (flag == 0 && kind == MPI_SUCCESS) return false;
  source_ = status.MPI_SOURCE;
  tag_ = status.MPI_TAG;
  return true;
}

const Label& IncomingMessage::wait() {
  weft::mpi::Waiter waiter({.operation = "Irecv", .team = team_.get(), .explain = nothing_came, .subject = &source_});
  while (!arrived()) waiter.idle();
  require_fitting();
  buffer_.unsafeGetTensorImpl()->bump_version();
  if (!memory_->data.is_same(buffer_)) {
    const at::NoGradGuard no_grad;
    buffer_.copy_(memory_->data);
  }
  if (direction_ == Direction::kBackward) confirm();
  return memory_->label;
}

void IncomingMessage::require_fitting() const {
  const Label expected = label_of(buffer_);
  const Label& label = memory_->label;
  if (label.magic == expected.magic && label.inlined && label.type == expected.type && label.bytes == expected.bytes) {
    return;
  }
  const std::string sent = label.magic == expected.magic ? label.describe() : "something else";
  const std::string text = "rank " + std::to_string(team_->rank()) + " receives into " +
                           weft::collective::describe(buffer_) + ", but rank " + std::to_string(source_) + " sent " +
                           sent;
  team_->raise_alarm(text);
  TORCH_CHECK(false, "mpi4torch: ", text);
}

void IncomingMessage::confirm() const {
  const MPI_Comm channel = team_->channel(direction_).handle();
  weft::mpi::Request request;
  check(MPI_Irecv(nullptr, 0, MPI_BYTE, source_, tag_, channel, request.add()), "MPI_Irecv", channel);
  request.wait({.operation = "receiving a gradient", .team = team_.get()});
}

}  // namespace mpi4torch
