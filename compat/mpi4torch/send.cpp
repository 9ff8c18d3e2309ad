#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "compat/mpi4torch/dummies.h"
#include "compat/mpi4torch/message.h"
#include "compat/mpi4torch/peers.h"
#include "compat/mpi4torch/point_to_point.h"
#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/node.h"
#include "weft/collective/tensor.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::collective::OperationNode;
using weft::collective::TensorSpec;
using weft::collective::variable_list;

// Shared by the nodes of Isend and its Wait.
struct Sent {
  std::int64_t dest;
  std::int64_t gradient_tag;
  TensorSpec tensor;
  Handle gradient;  // the receive in the current backward pass

  [[nodiscard]] Handle receive_gradient(const CommunicatorPtr& communicator) const {
    return irecv(at::empty_symint(tensor.sizes, tensor.options), dest, gradient_tag, communicator);
  }
};

struct IsendAdjoint {
  std::shared_ptr<Sent> sent;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    Handle incoming = std::exchange(sent->gradient, {});
    if (incoming.empty()) incoming = sent->receive_gradient(node.communicator());
    incoming[0] = join_dummies(incoming[0], {g[0]});
    return {wait(incoming)};
  }
};

// The result is the sent tensor, so its own gradient is passed on as well.
struct WaitAdjoint {
  std::shared_ptr<Sent> sent;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    sent->gradient = sent->receive_gradient(node.communicator());
    return {join_dummies(make_dummy(), {sent->gradient[0], g[0]}), g[0]};
  }
};

class Sending final : public Transfer {
 public:
  Sending(const Tensor& x, CommunicatorPtr communicator, std::shared_ptr<Sent> sent, bool wants_grad)
      : x_(x), communicator_(std::move(communicator)), sent_(std::move(sent)), wants_grad_(wants_grad) {}

  void start(std::int64_t tag) {
    message_ = std::make_unique<OutgoingMessage>(x_, communicator_, sent_->dest, tag, sent_->gradient_tag, wants_grad_);
  }

  [[nodiscard]] Tensor finish(const Tensor& dummy) override {
    const weft::mpi::OperationScope scope("Wait", communicator_.get());
    if (message_) message_->wait();
    const Tensor x = std::exchange(x_, Tensor());
    Tensor result(x.tensor_data());
    if (!message_) return join_dummies(x, {dummy});
    if (wants_grad_ && c10::GradMode::is_enabled()) {
      weft::collective::record("Wait", communicator_, {dummy, x}, {result}, WaitAdjoint{sent_}, /*tape=*/false);
      return result;
    }
    const bool joins = torch::autograd::isDifferentiableType(x.scalar_type());
    return joins ? join_dummies(result, {dummy}) : result;
  }

 private:
  Tensor x_;
  CommunicatorPtr communicator_;
  std::shared_ptr<Sent> sent_;
  bool wants_grad_;
  std::unique_ptr<OutgoingMessage> message_;  // null for MPI_PROC_NULL
};

}  // namespace

Handle isend(const Tensor& x, std::int64_t dest, std::int64_t tag, const CommunicatorPtr& communicator) {
  const weft::mpi::OperationScope scope("Isend", communicator.get());
  communicator->enter();
  require_sendable(x);
  const bool wants_grad = x.requires_grad() && c10::GradMode::is_enabled();
  auto sent =
      std::make_shared<Sent>(Sent{dest, communicator->transfer_tag(communicator->next_transfer()), TensorSpec(x), {}});
  auto sending = std::make_shared<Sending>(x, communicator, sent, wants_grad);
  if (dest == MPI_PROC_NULL) return make_handle(make_dummy(), std::move(sending));
  weft::collective::require_rank(dest, communicator->size(), "dest");
  require_tag(tag, communicator);
  sending->start(tag);
  Tensor dummy = make_dummy();
  if (wants_grad) {
    weft::collective::record("Isend", communicator, {x}, {dummy}, IsendAdjoint{std::move(sent)}, /*tape=*/false);
  }
  return make_handle(std::move(dummy), std::move(sending));
}

Tensor send(const Tensor& x, std::int64_t dest, std::int64_t tag, const CommunicatorPtr& communicator) {
  const weft::mpi::OperationScope scope("Send", communicator.get());
  return wait(isend(x, dest, tag, communicator));
}

Tensor sendrecv(const Tensor& x, std::int64_t dest, std::int64_t send_tag, const Tensor& buffer, std::int64_t source,
                std::int64_t recv_tag, const CommunicatorPtr& communicator) {
  const weft::mpi::OperationScope scope("Sendrecv", communicator.get());
  const Handle outgoing = isend(x, dest, send_tag, communicator);
  const Handle incoming = irecv(join_dummies(buffer, {outgoing[0]}), source, recv_tag, communicator);
  const Tensor received = wait(incoming);
  const Tensor sent = wait({join_dummies(outgoing[0], {incoming[0]}), outgoing[1]});
  return join_dummies(received, {sent});
}

}  // namespace mpi4torch
