#include "weft/collective/point_to_point.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include "weft/collective/operator.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/error.h"
#include "weft/mpi/parcel.h"

namespace weft::collective {
namespace {

using at::Tensor;
using mpi::Team;

// Gradient sends still under way in this thread's backward pass; without waiting for each, ranks that send gradients
// to each other cannot block each other.
void finish_at_end_of_backward(mpi::Request request, const Comm& team) {
  if (request.test()) return;
  auto held = std::make_shared<mpi::Request>(std::move(request));
  torch::autograd::Engine::get_default_engine().queue_callback(
      [held, team] { held->wait({.operation = "sending a gradient", .team = team.get()}); });
}

// One message out. In the backward direction the tag is the gradient's own and stays it for further derivatives.
mpi::Request start_send(const Tensor& x, const Comm& team, mpi::Direction direction, std::int64_t dest,
                        std::int64_t tag, std::int64_t gradient_tag, bool wants_grad) {
  const Tensor in = readable(x.detach());
  mpi::Label label = mpi::label_for(datatype_of(x.scalar_type()), {x.sizes().data(), x.sizes().size()});
  label.wants_grad = wants_grad;
  label.gradient_tag = gradient_tag;
  return mpi::send_parcel(*team, direction, static_cast<int>(dest), static_cast<int>(tag), label, in.const_data_ptr(),
                          keep_alive(in));
}

Tensor take(mpi::IncomingParcel& parcel, const std::optional<Tensor>& like) {
  const mpi::Label& label = parcel.wait_label();
  const auto type = scalar_type_of(label.type);
  const at::IntArrayRef shape(label.sizes().data(), label.sizes().size());
  const auto target = at::TensorOptions().dtype(type).device(like ? like->device() : at::Device(at::kCPU));
  const Tensor model = at::empty({0}, target);
  Tensor out = writable(shape, model);
  parcel.receive_into(out.mutable_data_ptr(), keep_alive(out));
  return delivered(std::move(out), model);
}

void require_tag(std::int64_t tag, const Comm& team) {
  const int most = team->origin().tag_upper_bound();
  TORCH_CHECK(tag >= 0 && tag <= most, "weft: expected a tag in [0, ", most, "], got ", tag);
}

// Both ends of a message that does not fit throw; nothing stays behind in the channel.
void require_like(mpi::IncomingParcel& parcel, const Tensor& like, const Comm& team) {
  const mpi::Label& label = parcel.wait_label();
  const at::IntArrayRef shape(label.sizes().data(), label.sizes().size());
  if (scalar_type_of(label.type) == like.scalar_type() && shape == like.sizes()) return;
  parcel.discard();
  const std::string text = "recv on rank " + std::to_string(team->rank()) + " expected " + describe(like) +
                           " from rank " + std::to_string(parcel.source()) + ", got " + label.describe();
  team->raise_alarm(text);
  TORCH_CHECK(false, "weft: ", text);
}

Tensor receive_gradient(const Comm& team, std::int64_t source, std::int64_t tag);
void send_gradient(const Tensor& g, const Comm& team, std::int64_t dest, std::int64_t tag);

struct SendAdjoint {
  std::int64_t dest;
  std::int64_t gradient_tag;
  at::Device device;
  variable_list operator()(OperationNode& node, variable_list&& /*none*/) const {
    return {receive_gradient(node.team(), dest, gradient_tag).to(device)};
  }
};

struct RecvAdjoint {
  std::int64_t source;
  std::int64_t gradient_tag;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    send_gradient(g[0], node.team(), source, gradient_tag);
    return {};
  }
};

void record_send(const Tensor& x, const Comm& team, std::int64_t dest, std::int64_t gradient_tag) {
  record("send", team, {x}, {}, SendAdjoint{dest, gradient_tag, x.device()});
}

void record_recv(const Tensor& y, const Comm& team, std::int64_t source, std::int64_t gradient_tag) {
  record("recv", team, {}, {y}, RecvAdjoint{source, gradient_tag});
}

Tensor receive_gradient(const Comm& team, std::int64_t source, std::int64_t tag) {
  mpi::IncomingParcel parcel(*team, mpi::Direction::kBackward, static_cast<int>(source), static_cast<int>(tag));
  Tensor g = take(parcel, std::nullopt);
  if (parcel.wait_label().wants_grad) record_recv(g, team, source, tag);
  return g;
}

void send_gradient(const Tensor& g, const Comm& team, std::int64_t dest, std::int64_t tag) {
  const bool wants_grad = g.requires_grad() && c10::GradMode::is_enabled();
  finish_at_end_of_backward(start_send(g, team, mpi::Direction::kBackward, dest, tag, tag, wants_grad), team);
  if (wants_grad) record_send(g, team, dest, tag);
}

class PendingSend final : public Pending {
 public:
  PendingSend(Comm team, mpi::Request request) : Pending("isend", std::move(team)), request_(std::move(request)) {}
  bool ready() override { return request_.test(); }

 protected:
  Tensor finish() override {
    request_.wait({.operation = "isend", .team = team().get()});
    return {};
  }

 private:
  mpi::Request request_;
};

class PendingRecv final : public Pending {
 public:
  PendingRecv(const Comm& team, std::optional<Tensor> like, std::optional<int> source, std::optional<int> tag)
      : Pending("irecv", team), like_(std::move(like)), parcel_(*team, current_direction(), source, tag) {}
  bool ready() override { return parcel_.arrived(); }
  std::int64_t source() const override { return parcel_.source(); }
  std::int64_t tag() const override { return parcel_.tag(); }

 protected:
  Tensor finish() override {
    if (like_) require_like(parcel_, *like_, team());
    Tensor y = take(parcel_, like_);
    const mpi::Label& label = parcel_.wait_label();
    if (label.wants_grad) {
      if (!c10::GradMode::is_enabled()) refuse_to_answer();
      record_recv(y, team(), parcel_.source(), label.gradient_tag);
    }
    return y;
  }

 private:
  // The sender would wait for the gradient in its backward pass, so it must hear about it.
  [[noreturn]] void refuse_to_answer() {
    const std::string text = "rank " + std::to_string(parcel_.source()) +
                             " sent a tensor that requires grad, but rank " + std::to_string(team()->rank()) +
                             " receives it under no_grad and could never answer its gradient";
    team()->raise_alarm(text);
    TORCH_CHECK(false, "weft: ", text);
  }

  std::optional<Tensor> like_;
  mpi::IncomingParcel parcel_;
};

std::optional<int> narrow(std::optional<std::int64_t> value) {
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

}  // namespace

c10::intrusive_ptr<Pending> isend(const Tensor& x, const Comm& comm, std::int64_t dest, std::int64_t tag,
                                  std::source_location where) {
  const mpi::OperationScope scope("isend", comm.get(), where);
  interruptible([&] { comm->enter(); });
  require_communicable(x);
  TORCH_CHECK(!torch::autograd::isFwGradDefined(x),
              "weft: messages carry no forward-mode derivative; use a collective, ",
              "or differentiate in reverse mode");
  require_rank(dest, comm->size(), "dest");
  require_tag(tag, comm);
  const bool wants_grad = x.requires_grad() && c10::GradMode::is_enabled();
  const std::int64_t gradient_tag = comm->transfer_tag(comm->next_transfer());
  auto request = start_send(x, comm, current_direction(), dest, tag, gradient_tag, wants_grad);
  if (wants_grad) record_send(x, comm, dest, gradient_tag);
  return c10::make_intrusive<PendingSend>(comm, std::move(request));
}

void send(const Tensor& x, const Comm& comm, std::int64_t dest, std::int64_t tag, std::source_location where) {
  const mpi::OperationScope scope("send", comm.get(), where);
  wait(isend(x, comm, dest, tag));
}

c10::intrusive_ptr<Pending> irecv(const std::optional<Tensor>& like, const Comm& comm,
                                  std::optional<std::int64_t> source, std::optional<std::int64_t> tag,
                                  std::source_location where) {
  const mpi::OperationScope scope("irecv", comm.get(), where);
  interruptible([&] { comm->enter(); });
  if (like) require_communicable(*like);
  if (source) require_rank(*source, comm->size(), "source");
  if (tag) require_tag(*tag, comm);
  return c10::make_intrusive<PendingRecv>(comm, like, narrow(source), narrow(tag));
}

Received recv(const std::optional<Tensor>& like, const Comm& comm, std::optional<std::int64_t> source,
              std::optional<std::int64_t> tag, std::source_location where) {
  const mpi::OperationScope scope("recv", comm.get(), where);
  const auto pending = irecv(like, comm, source, tag);
  Tensor tensor = wait(pending);
  return {std::move(tensor), pending->source(), pending->tag()};
}

Tensor sendrecv(const Tensor& x, const Comm& comm, std::int64_t dest, std::int64_t source, std::int64_t tag,
                const std::optional<Tensor>& like, std::source_location where) {
  const mpi::OperationScope scope("sendrecv", comm.get(), where);
  const auto sending = isend(x, comm, dest, tag);
  Tensor y = recv(like, comm, source, tag).tensor;
  wait(sending);
  return like ? y : delivered(std::move(y), x);
}

}  // namespace weft::collective
