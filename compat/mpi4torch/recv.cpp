#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

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

// What the nodes of Irecv and of its Wait share. The last three are known from Wait on.
struct Received {
  Blank buffer;
  bool sender_wants_gradient = false;
  int source = -1;
  std::int64_t gradient_tag = 0;
  int answered_in = -1;  // the backward pass that sent the gradient
};

Tensor zeros_like(const Blank& blank) { return light_zeros(blank.sizes, blank.options); }

// Starts to send and waits at the end of the backward pass: ranks that answer each other cannot block each other.
// Returns the dummy of the transfer.
Tensor answer(Received& received, const Tensor& gradient, const Comm& team) {
  received.answered_in = torch::autograd::get_current_graph_task_id();
  const Handle handle = isend(gradient, received.source, received.gradient_tag, team);
  torch::autograd::Engine::get_default_engine().queue_callback([handle] { static_cast<void>(wait(handle)); });
  return handle[0];
}

// Where nobody used the result but something depends on the handle, the sender still gets its zeros.
struct IrecvAdjoint {
  std::shared_ptr<Received> received;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    std::vector<Tensor> before{g[0]};
    if (received->sender_wants_gradient && received->answered_in != torch::autograd::get_current_graph_task_id()) {
      before.push_back(answer(*received, zeros_like(received->buffer), node.team()));
    }
    return {join_dummies(zeros_like(received->buffer), before)};
  }
};

struct WaitAdjoint {
  std::shared_ptr<Received> received;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    if (!received->sender_wants_gradient) return {join_dummies(make_dummy(), {g[0]})};
    return {join_dummies(make_dummy(), {answer(*received, g[0], node.team()), g[0]})};
  }
};

class Receiving final : public Transfer {
 public:
  Receiving(const Tensor& buffer, Comm team, std::shared_ptr<Received> received)
      : memory_(buffer.tensor_data()), team_(std::move(team)), received_(std::move(received)) {}

  void start(std::int64_t source, std::int64_t tag) {
    message_ = std::make_unique<IncomingMessage>(memory_, team_, source, tag);
  }

  [[nodiscard]] Tensor finish(const Tensor& dummy) override {
    const weft::mpi::OperationScope scope("Wait", team_.get());
    if (message_) receive();
    Tensor result = std::exchange(memory_, Tensor());
    const bool differentiable = torch::autograd::isDifferentiableType(result.scalar_type());
    const bool wanted = received_->sender_wants_gradient || dummy.requires_grad();
    if (wanted && differentiable && c10::GradMode::is_enabled()) {
      weft::collective::record("Wait", team_, {dummy}, {result}, WaitAdjoint{received_}, /*tape=*/false);
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
  Comm team_;
  std::shared_ptr<Received> received_;
  std::unique_ptr<IncomingMessage> message_;  // none from MPI_PROC_NULL
};

}  // namespace

Handle irecv(const Tensor& buffer, std::int64_t source, std::int64_t tag, const Comm& team) {
  const weft::mpi::OperationScope scope("Irecv", team.get());
  team->enter();
  require_sendable(buffer);
  at::assert_no_internal_overlap(buffer);
  auto received = std::make_shared<Received>();
  received->buffer = Blank(buffer);
  auto receiving = std::make_shared<Receiving>(buffer, team, received);
  if (source != MPI_PROC_NULL) {
    if (source != MPI_ANY_SOURCE) weft::collective::require_rank(source, team->size(), "source");
    if (tag != MPI_ANY_TAG) require_tag(tag, team);
    receiving->start(source, tag);
  }
  Tensor dummy = make_dummy();
  if (buffer.requires_grad() && c10::GradMode::is_enabled()) {
    weft::collective::record("Irecv", team, {buffer}, {dummy}, IrecvAdjoint{std::move(received)}, /*tape=*/false);
  }
  return make_handle(std::move(dummy), std::move(receiving));
}

Tensor recv(const Tensor& buffer, std::int64_t source, std::int64_t tag, const Comm& team) {
  const weft::mpi::OperationScope scope("Recv", team.get());
  return wait(irecv(buffer, source, tag, team));
}

}  // namespace mpi4torch
