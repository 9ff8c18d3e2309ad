#include "weft/collective/autograd/pending_collective.h"

#include <utility>

#include "weft/collective/autograd/node.h"

namespace weft::collective {

using at::Tensor;

// Shared by the nodes of the start and of wait().
struct PendingCollective::BackwardState {
  AsyncAdjoint adjoint;
  TensorSpec result;  // shape of the zeros for an unused result
  bool started = false;
};

AsyncAdjoint overlapping_adjoint(std::function<c10::intrusive_ptr<PendingOperation>(const Tensor& gradient)> run) {
  auto pending = std::make_shared<c10::intrusive_ptr<PendingOperation>>();
  return {[pending, run = std::move(run)](const Tensor& g) { *pending = run(g); },
          [pending] { return wait(std::exchange(*pending, nullptr)); }};
}

AsyncAdjoint blocking_adjoint(std::function<Tensor(const Tensor& gradient)> run) {
  auto gradient = std::make_shared<Tensor>();
  return {[gradient](const Tensor& g) { *gradient = g; },
          [gradient, run = std::move(run)] { return run(std::exchange(*gradient, Tensor())); }};
}

void PendingCollective::record_start(const Tensor& x, at::IntArrayRef result_sizes, AsyncAdjoint adjoint) {
  backward_ = std::make_shared<BackwardState>(
      BackwardState{.adjoint = std::move(adjoint), .result = TensorSpec(result_sizes, x.options())});
  // The node of the start runs last in backward.
  auto complete = [state = backward_](OperationNode& /*node*/, variable_list&& /*none*/) -> variable_list {
    if (!state->started) state->adjoint.start(state->result.zeros());
    state->started = false;
    return {state->adjoint.finish()};
  };
  auto node = record(name(), communicator(), {x}, {}, std::move(complete));
  start_ = {node, node->add_input_metadata(torch::autograd::Node::undefined_input())};
}

Tensor PendingCollective::finish() {
  request.wait({.operation = name(), .communicator = communicator().get()});
  Tensor y = result();
  result = nullptr;
  if (!backward_) return y;
  // The node of wait() runs first in backward.
  auto start = [state = backward_](OperationNode& /*node*/, variable_list&& g) -> variable_list {
    state->adjoint.start(g[0]);
    state->started = true;
    return {};
  };
  record(name(), communicator(), {}, {y}, std::move(start))->add_next_edge(start_);
  return y;
}

}  // namespace weft::collective
