#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "compat/mpi4torch/dummies.h"
#include "compat/mpi4torch/message.h"
#include "compat/mpi4torch/peers.h"
#include "compat/mpi4torch/point_to_point.h"
#include "weft/collective/node.h"
#include "weft/collective/tensor.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::collective::Blank;
using weft::collective::OperationNode;
using weft::collective::variable_list;

// What the nodes of Isend and of its Wait share.
struct Sent {
  std::int64_t dest;
  std::int64_t gradient_tag;
  Blank tensor;
  Handle gradient;  // being received in the backward pass under way

  [[nodiscard]] Handle ask_for_gradient(const Comm& team) const {
    return irecv(at::empty_symint(tensor.sizes, tensor.options), dest, gradient_tag, team);
  }
};

struct IsendAdjoint {
  std::shared_ptr<Sent> sent;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    Handle incoming = std::exchange(sent->gradient, {});
    if (incoming.empty()) incoming = sent->ask_for_gradient(node.team());
    incoming[0] = join_dummies(incoming[0], {g[0]});
    return {wait(incoming)};
  }
};

// The result is the tensor sent, so its gradient is passed on too.
struct WaitAdjoint {
  std::shared_ptr<Sent> sent;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    sent->gradient = sent->ask_for_gradient(node.team());
    return {join_dummies(make_dummy(), {sent->gradient[0], g[0]}), g[0]};
  }
};

class Sending final : public Transfer {
 public:
  Sending(const Tensor& x, Comm team, std::shared_ptr<Sent> sent, bool wants_grad)
      : x_(x), team_(std::move(team)), sent_(std::move(sent)), wants_grad_(wants_grad) {}

  void start(std::int64_t tag) {
    message_ = std::make_unique<OutgoingMessage>(x_, team_, sent_->dest, tag, sent_->gradient_tag, wants_grad_);
  }

  [[nodiscard]] Tensor finish(const Tensor& dummy) override {
    const weft::mpi::OperationScope scope("Wait", team_.get());
    if (message_) message_->wait();
    const Tensor x = std::exchange(x_, Tensor());
    Tensor result(x.tensor_data());
    if (!message_) return join_dummies(x, {dummy});
    if (wants_grad_ && c10::GradMode::is_enabled()) {
      weft::collective::record("Wait", team_, {dummy, x}, {result}, WaitAdjoint{sent_}, /*tape=*/false);
      return result;
    }
    const bool joins = torch::autograd::isDifferentiableType(x.scalar_type());
    return joins ? join_dummies(result, {dummy}) : result;
  }

 private:
  Tensor x_;
  Comm team_;
  std::shared_ptr<Sent> sent_;
  bool wants_grad_;
  std::unique_ptr<OutgoingMessage> message_;  // none to MPI_PROC_NULL
};

}  // namespace

Handle isend(const Tensor& x, std::int64_t dest, std::int64_t tag, const Comm& team) {
  const weft::mpi::OperationScope scope("Isend", team.get());
  team->enter();
  require_sendable(x);
  const bool wants_grad = x.requires_grad() && c10::GradMode::is_enabled();
  auto sent = std::make_shared<Sent>(Sent{dest, team->transfer_tag(team->next_transfer()), Blank(x), {}});
  auto sending = std::make_shared<Sending>(x, team, sent, wants_grad);
  if (dest == MPI_PROC_NULL) return make_handle(make_dummy(), std::move(sending));
  weft::collective::require_rank(dest, team->size(), "dest");
  require_tag(tag, team);
  sending->start(tag);
  Tensor dummy = make_dummy();
  if (wants_grad) {
    weft::collective::record("Isend", team, {x}, {dummy}, IsendAdjoint{std::move(sent)}, /*tape=*/false);
  }
  return make_handle(std::move(dummy), std::move(sending));
}

Tensor send(const Tensor& x, std::int64_t dest, std::int64_t tag, const Comm& team) {
  const weft::mpi::OperationScope scope("Send", team.get());
  return wait(isend(x, dest, tag, team));
}

Tensor sendrecv(const Tensor& x, std::int64_t dest, std::int64_t send_tag, const Tensor& buffer, std::int64_t source,
                std::int64_t recv_tag, const Comm& team) {
  const weft::mpi::OperationScope scope("Sendrecv", team.get());
  const Handle outgoing = isend(x, dest, send_tag, team);
  const Handle incoming = irecv(join_dummies(buffer, {outgoing[0]}), source, recv_tag, team);
  const Tensor received = wait(incoming);
  const Tensor sent = wait({join_dummies(outgoing[0], {incoming[0]}), outgoing[1]});
  return join_dummies(received, {sent});
}

}  // namespace mpi4torch
