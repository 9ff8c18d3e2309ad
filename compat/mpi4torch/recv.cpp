#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

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

// Shared by the nodes of Irecv and its Wait, which sets all members but the first.
struct Received {
  TensorSpec buffer;
  bool sender_wants_gradient = false;
  int source = -1;
  std::int64_t gradient_tag = 0;
  int sent_in = -1;  // the backward pass that sent the gradient
};

Tensor zeros_like(const TensorSpec& blank) { return light_zeros(blank.sizes, blank.options); }

// Starts to send the gradient and waits at the end of the backward pass, so that ranks that send gradients to each
// other do not deadlock. Returns the dummy of the transfer.
Tensor send_gradient(Received& received, const Tensor& gradient, const CommunicatorPtr& communicator) {
  received.sent_in = torch::autograd::get_current_graph_task_id();
  const Handle handle = isend(gradient, received.source, received.gradient_tag, communicator);
  torch::autograd::Engine::get_default_engine().queue_callback([handle] { static_cast<void>(wait(handle)); });
  return handle[0];
}

// Sends zeros if backward reaches the handle but not the result of Wait.
struct IrecvAdjoint {
  std::shared_ptr<Received> received;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    std::vector<Tensor> before{g[0]};
    if (received->sender_wants_gradient && received->sent_in != torch::autograd::get_current_graph_task_id()) {
      before.push_back(send_gradient(*received, zeros_like(received->buffer), node.communicator()));
    }
    return {join_dummies(zeros_like(received->buffer), before)};
  }
};

struct WaitAdjoint {
  std::shared_ptr<Received> received;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    if (!received->sender_wants_gradient) return {join_dummies(make_dummy(), {g[0]})};
    return {join_dummies(make_dummy(), {send_gradient(*received, g[0], node.communicator()), g[0]})};
  }
};

class Receiving final : public Transfer {
 public:
  Receiving(const Tensor& buffer, CommunicatorPtr communicator, std::shared_ptr<Received> received)
      : memory_(buffer.tensor_data()), communicator_(std::move(communicator)), received_(std::move(received)) {}

  void start(std::int64_t source, std::int64_t tag) {
    message_ = std::make_unique<IncomingMessage>(memory_, communicator_, source, tag);
  }

  [[nodiscard]] Tensor finish(const Tensor& dummy) override {
    const weft::mpi::OperationScope scope("Wait", communicator_.get());
    if (message_) receive();
    Tensor result = std::exchange(memory_, Tensor());
    const bool differentiable = torch::autograd::isDifferentiableType(result.scalar_type());
    const bool wanted = received_->sender_wants_gradient || dummy.requires_grad();
    if (wanted && differentiable && c10::GradMode::is_enabled()) {
      weft::collective::record("Wait", communicator_, {dummy}, {result}, WaitAdjoint{received_}, /*tape=*/false);
    }
    return result;
  }

 private:
  void receive() {
    const weft::mpi::Label& label = message_->wait();
    received_->sender_wants_gradient = label.wants_grad;
    received_->gradient_tag = label.gradient_tag;
    received_->source = message_->source();
    message_.reset();
  }

  Tensor memory_;
  CommunicatorPtr communicator_;
  std::shared_ptr<Received> received_;
  std::unique_ptr<IncomingMessage> message_;  // null for MPI_PROC_NULL
};

}  // namespace

Handle irecv(const Tensor& buffer, std::int64_t source, std::int64_t tag, const CommunicatorPtr& communicator) {
  const weft::mpi::OperationScope scope("Irecv", communicator.get());
  communicator->enter();
  require_sendable(buffer);
  at::assert_no_internal_overlap(buffer);
  auto received = std::make_shared<Received>();
  received->buffer = TensorSpec(buffer);
  auto receiving = std::make_shared<Receiving>(buffer, communicator, received);
  if (source != MPI_PROC_NULL) {
    if (source != MPI_ANY_SOURCE) weft::collective::require_rank(source, communicator->size(), "source");
    if (tag != MPI_ANY_TAG) require_tag(tag, communicator);
    receiving->start(source, tag);
  }
  Tensor dummy = make_dummy();
  if (buffer.requires_grad() && c10::GradMode::is_enabled()) {
    weft::collective::record("Irecv", communicator, {buffer}, {dummy}, IrecvAdjoint{std::move(received)},
                             /*tape=*/false);
  }
  return make_handle(std::move(dummy), std::move(receiving));
}

Tensor recv(const Tensor& buffer, std::int64_t source, std::int64_t tag, const CommunicatorPtr& communicator) {
  const weft::mpi::OperationScope scope("Recv", communicator.get());
  return wait(irecv(buffer, source, tag, communicator));
}

}  // namespace mpi4torch
