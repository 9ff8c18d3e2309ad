#include "weft/collective/point_to_point.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/library.h>

#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/node.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/parcel.h"

namespace weft::collective {
namespace {

using at::Tensor;

// Waits for a gradient send at the end of this thread's backward pass instead of at once, so that two ranks that send
// gradients to each other do not deadlock.
void finish_at_end_of_backward(mpi::Request request, const CommunicatorPtr& communicator) {
  if (request.test()) return;
  auto held = std::make_shared<mpi::Request>(std::move(request));
  torch::autograd::Engine::get_default_engine().queue_callback(
      [held, communicator] { held->wait({.operation = "sending a gradient", .communicator = communicator.get()}); });
}

// Starts to send one message. On the backward channel, `tag` equals `gradient_tag`, also for higher derivatives.
mpi::Request start_send(const Tensor& x, const CommunicatorPtr& communicator, mpi::CommView channel, std::int64_t dest,
                        std::int64_t tag, std::int64_t gradient_tag, bool wants_grad) {
  const Tensor in = readable(x.detach());
  mpi::Label label = mpi::label_for(datatype_of(x.scalar_type()), {x.sizes().data(), x.sizes().size()});
  label.wants_grad = wants_grad;
  label.gradient_tag = gradient_tag;
  return mpi::send_parcel(*communicator, channel, static_cast<int>(dest), static_cast<int>(tag), label,
                          in.const_data_ptr(), keep_alive(in));
}

Tensor receive(mpi::IncomingParcel& parcel, const std::optional<Tensor>& like) {
  const mpi::Label& label = parcel.wait_label();
  const auto type = scalar_type_of(label.type);
  const at::IntArrayRef shape(label.sizes().data(), label.sizes().size());
  const auto target = at::TensorOptions().dtype(type).device(like ? like->device() : at::Device(at::kCPU));
  const Tensor model = at::empty({0}, target);
  Tensor out = writable(shape, model);
  parcel.receive_into(out.mutable_data_ptr(), keep_alive(out));
  return to_device_of(std::move(out), model);
}

void require_tag(std::int64_t tag, const CommunicatorPtr& communicator) {
  const int most = communicator->origin().tag_upper_bound();
  TORCH_CHECK(tag >= 0 && tag <= most, "weft: expected a tag in [0, ", most, "], got ", tag);
}

// Throws on both ends if the message does not match `like`; discards the message, so the channel stays usable.
void require_like(mpi::IncomingParcel& parcel, const Tensor& like, const CommunicatorPtr& communicator) {
  const mpi::Label& label = parcel.wait_label();
  const at::IntArrayRef shape(label.sizes().data(), label.sizes().size());
  if (scalar_type_of(label.type) == like.scalar_type() && shape == like.sizes()) return;
  parcel.discard();
  const std::string text = "recv on rank " + std::to_string(communicator->rank()) + " expected " + describe(like) +
                           " from rank " + std::to_string(parcel.source()) + ", got " + label.describe();
  communicator->raise_alarm(text);
  TORCH_CHECK(false, "weft: ", text);
}

Tensor receive_gradient(const CommunicatorPtr& communicator, std::int64_t source, std::int64_t tag);
void send_gradient(const Tensor& g, const CommunicatorPtr& communicator, std::int64_t dest, std::int64_t tag);

struct SendAdjoint {
  std::int64_t dest;
  std::int64_t gradient_tag;
  at::Device device;
  variable_list operator()(OperationNode& node, variable_list&& /*none*/) const {
    return {receive_gradient(node.communicator(), dest, gradient_tag).to(device)};
  }
};

struct RecvAdjoint {
  std::int64_t source;
  std::int64_t gradient_tag;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    send_gradient(g[0], node.communicator(), source, gradient_tag);
    return {};
  }
};

void record_send(const Tensor& x, const CommunicatorPtr& communicator, std::int64_t dest, std::int64_t gradient_tag) {
  record("send", communicator, {x}, {}, SendAdjoint{dest, gradient_tag, x.device()});
}

void record_recv(const Tensor& y, const CommunicatorPtr& communicator, std::int64_t source, std::int64_t gradient_tag) {
  record("recv", communicator, {}, {y}, RecvAdjoint{source, gradient_tag});
}

Tensor receive_gradient(const CommunicatorPtr& communicator, std::int64_t source, std::int64_t tag) {
  mpi::IncomingParcel parcel(*communicator, communicator->channel(mpi::Direction::kBackward), static_cast<int>(source),
                             static_cast<int>(tag));
  Tensor g = receive(parcel, std::nullopt);
  if (parcel.wait_label().wants_grad) record_recv(g, communicator, source, tag);
  return g;
}

void send_gradient(const Tensor& g, const CommunicatorPtr& communicator, std::int64_t dest, std::int64_t tag) {
  const bool wants_grad = g.requires_grad() && c10::GradMode::is_enabled();
  const auto channel = communicator->channel(mpi::Direction::kBackward);
  finish_at_end_of_backward(start_send(g, communicator, channel, dest, tag, tag, wants_grad), communicator);
  if (wants_grad) record_send(g, communicator, dest, tag);
}

class PendingSend final : public PendingOperation {
 public:
  PendingSend(CommunicatorPtr communicator, mpi::Request request)
      : PendingOperation("isend", std::move(communicator)), request_(std::move(request)) {}
  bool ready() override { return request_.test(); }

 protected:
  Tensor finish() override {
    request_.wait({.operation = "isend", .communicator = communicator().get()});
    return {};
  }

 private:
  mpi::Request request_;
};

class PendingRecv final : public PendingOperation {
 public:
  PendingRecv(const CommunicatorPtr& communicator, mpi::CommView channel, std::optional<Tensor> like,
              std::optional<int> source, std::optional<int> tag)
      : PendingOperation("irecv", communicator), like_(std::move(like)), parcel_(*communicator, channel, source, tag) {}
  bool ready() override { return parcel_.arrived(); }
  std::int64_t source() const override { return parcel_.source(); }
  std::int64_t tag() const override { return parcel_.tag(); }

 protected:
  Tensor finish() override {
    // If the memory for the payload is missing, the sender might wait for its receiver.
    Tensor y = alarm_on_failure(*communicator(), [&] {
      if (like_) require_like(parcel_, *like_, communicator());
      return receive(parcel_, like_);
    });
    const mpi::Label& label = parcel_.wait_label();
    if (label.wants_grad) {
      if (!c10::GradMode::is_enabled()) throw_no_grad();
      record_recv(y, communicator(), parcel_.source(), label.gradient_tag);
    }
    return y;
  }

 private:
  // The sender would wait for the gradient in its backward pass, so it is notified.
  [[noreturn]] void throw_no_grad() {
    const std::string text =
        "rank " + std::to_string(parcel_.source()) + " sent a tensor that requires grad, but rank " +
        std::to_string(communicator()->rank()) +
        " receives it under no_grad and cannot return its gradient; send tensor.detach(), or receive with grad enabled";
    communicator()->raise_alarm(text);
    TORCH_CHECK(false, "weft: ", text);
  }

  std::optional<Tensor> like_;
  mpi::IncomingParcel parcel_;
};

std::optional<int> narrow(std::optional<std::int64_t> value) {
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

void require_sendable(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dest, std::int64_t tag) {
  require_message(x, "isend");
  reject_checkpointing();
  require_rank(dest, comm->size(), "dest");
  require_tag(tag, comm);
}

void require_receivable(const std::optional<Tensor>& like, const CommunicatorPtr& comm,
                        std::optional<std::int64_t> source, std::optional<std::int64_t> tag) {
  if (like) require_communicable(*like);
  reject_checkpointing();
  reject_transforms(like.value_or(Tensor()), "irecv");
  if (source) require_rank(*source, comm->size(), "source");
  if (tag) require_tag(*tag, comm);
}

}  // namespace

void require_message(const Tensor& x, const char* operation) {
  require_communicable(x);
  reject_transforms(x, operation);
  static_cast<void>(mpi::label_for(datatype_of(x.scalar_type()), {x.sizes().data(), x.sizes().size()}));
}

c10::intrusive_ptr<PendingOperation> isend_on(mpi::CommView channel, const Tensor& x, const CommunicatorPtr& comm,
                                              std::int64_t dest, std::int64_t tag) {
  const bool wants_grad = x.requires_grad() && c10::GradMode::is_enabled();
  const std::int64_t gradient_tag = comm->transfer_tag(comm->next_transfer());
  auto request = start_send(x, comm, channel, dest, tag, gradient_tag, wants_grad);
  if (wants_grad) record_send(x, comm, dest, gradient_tag);
  return c10::make_intrusive<PendingSend>(comm, std::move(request));
}

c10::intrusive_ptr<PendingOperation> irecv_on(mpi::CommView channel, const std::optional<Tensor>& like,
                                              const CommunicatorPtr& comm, std::optional<std::int64_t> source,
                                              std::optional<std::int64_t> tag) {
  return c10::make_intrusive<PendingRecv>(comm, channel, like, narrow(source), narrow(tag));
}

c10::intrusive_ptr<PendingOperation> isend(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dest,
                                           std::int64_t tag, std::source_location where) {
  const mpi::OperationScope scope("isend", comm.get(), where);
  interruptible([&] { comm->enter(); });
  require_sendable(x, comm, dest, tag);
  return isend_on(comm->messages(), x, comm, dest, tag);
}

void send(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dest, std::int64_t tag,
          std::source_location where) {
  const mpi::OperationScope scope("send", comm.get(), where);
  wait(isend(x, comm, dest, tag));
}

c10::intrusive_ptr<PendingOperation> irecv(const std::optional<Tensor>& like, const CommunicatorPtr& comm,
                                           std::optional<std::int64_t> source, std::optional<std::int64_t> tag,
                                           std::source_location where) {
  const mpi::OperationScope scope("irecv", comm.get(), where);
  interruptible([&] { comm->enter(); });
  require_receivable(like, comm, source, tag);
  return irecv_on(comm->messages(), like, comm, source, tag);
}

Received recv(const std::optional<Tensor>& like, const CommunicatorPtr& comm, std::optional<std::int64_t> source,
              std::optional<std::int64_t> tag, std::source_location where) {
  const mpi::OperationScope scope("recv", comm.get(), where);
  const auto pending = irecv(like, comm, source, tag);
  Tensor tensor = wait(pending);
  return {std::move(tensor), pending->source(), pending->tag()};
}

Tensor sendrecv(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dest, std::int64_t source, std::int64_t tag,
                const std::optional<Tensor>& like, std::source_location where) {
  const mpi::OperationScope scope("sendrecv", comm.get(), where);
  interruptible([&] { comm->enter(); });
  require_sendable(x, comm, dest, tag);  // all arguments, before anything is sent
  require_receivable(like, comm, source, tag);
  const auto sending = isend_on(comm->messages(), x, comm, dest, tag);
  Tensor y = wait(irecv_on(comm->messages(), like, comm, source, tag));
  wait(sending);
  return like ? y : to_device_of(std::move(y), x);
}

namespace {

// In the schemas, -1 stands for any source or tag.
std::optional<std::int64_t> unless_any(std::int64_t value) {
  return value == -1 ? std::nullopt : std::optional<std::int64_t>(value);
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_pending_operation_class();
  m.def("send(Tensor x, int dest, int tag, int comm) -> ()",
        [](const Tensor& x, std::int64_t dest, std::int64_t tag, std::int64_t comm) {
          send(x, Communicator::find(comm), dest, tag);
        });
  m.def("isend(Tensor x, int dest, int tag, int comm) -> __torch__.torch.classes.weft.PendingOperation",
        [](const Tensor& x, std::int64_t dest, std::int64_t tag, std::int64_t comm) {
          return isend(x, Communicator::find(comm), dest, tag);
        });
  m.def("recv(Tensor? like, int source, int tag, int comm) -> (Tensor, int, int)",
        [](const std::optional<Tensor>& like, std::int64_t source, std::int64_t tag, std::int64_t comm) {
          auto received = recv(like, Communicator::find(comm), unless_any(source), unless_any(tag));
          return std::tuple(std::move(received.tensor), received.source, received.tag);
        });
  m.def("irecv(Tensor? like, int source, int tag, int comm) -> __torch__.torch.classes.weft.PendingOperation",
        [](const std::optional<Tensor>& like, std::int64_t source, std::int64_t tag, std::int64_t comm) {
          return irecv(like, Communicator::find(comm), unless_any(source), unless_any(tag));
        });
  m.def("sendrecv(Tensor x, int dest, int source, int tag, int comm) -> Tensor",
        [](const Tensor& x, std::int64_t dest, std::int64_t source, std::int64_t tag, std::int64_t comm) {
          return sendrecv(x, Communicator::find(comm), dest, source, tag);
        });
}

}  // namespace
}  // namespace weft::collective
