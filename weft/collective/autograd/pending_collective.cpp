#include "weft/collective/autograd/pending_collective.h"

#include <utility>

#include "weft/collective/autograd/node.h"

namespace weft::collective {

using at::Tensor;

// Shared by the nodes of the start and of wait().
struct PendingCollective::BackwardState {
  AsyncAdjoint adjoint;
  TensorSpec result;                             // shape of the zeros for an unused result
  std::weak_ptr<Record> start;                   // the record of the start
  int task = -1;                                 // the backward pass that computed `gradient`
  Tensor gradient;                               // gradient of the result; undefined until backward reaches wait()
  c10::intrusive_ptr<PendingOperation> pending;  // the adjoint, if it has started early

  bool start_early(int current) {
    if (!adjoint.start || !gradient.defined() || task != current) return false;
    pending = adjoint.start(std::exchange(gradient, Tensor()));
    return true;
  }

  Tensor complete(int current) {
    const bool used = task == current;
    task = -1;
    if (used && pending) return wait(std::exchange(pending, nullptr));
    return adjoint.run(used ? std::exchange(gradient, Tensor()) : result.zeros());
  }
};

AsyncAdjoint overlapping_adjoint(std::function<c10::intrusive_ptr<PendingOperation>(const Tensor& gradient)> start) {
  return {.run = [start](const Tensor& g) { return wait(start(g)); }, .start = start};
}

AsyncAdjoint blocking_adjoint(std::function<Tensor(const Tensor& gradient)> run) {
  return {.run = std::move(run), .start = nullptr};
}

void PendingCollective::record_start(const Tensor& x, at::IntArrayRef result_sizes, AsyncAdjoint adjoint) {
  backward_ = std::make_shared<BackwardState>();
  backward_->adjoint = std::move(adjoint);
  backward_->result = TensorSpec(result_sizes, x.options());
  auto complete = [state = backward_](OperationNode& node, variable_list&& /*none*/) -> variable_list {
    return {state->complete(node.record()->task)};
  };
  auto node = record(name(), communicator(), {x}, {}, std::move(complete));
  node->record()->start_adjoint = [state = std::weak_ptr(backward_)](int task) {
    const auto locked = state.lock();
    return locked && locked->start_early(task);
  };
  backward_->start = node->record();
  start_ = {node, node->add_input_metadata(torch::autograd::Node::undefined_input())};
}

Tensor PendingCollective::finish() {
  request.wait({.operation = name(), .communicator = communicator().get()});
  Tensor y = result();
  result = nullptr;
  if (!backward_) return y;
  auto store_gradient = [state = backward_](OperationNode& node, variable_list&& g) -> variable_list {
    state->task = node.record()->task;
    state->pending = nullptr;
    state->gradient = g[0];
    if (const auto start = state->start.lock()) node.start_adjoint_in_order(start);
    return {};
  };
  auto node = record(name(), communicator(), {}, {y}, std::move(store_gradient));
  node->record()->waits = true;
  node->add_next_edge(start_);
  return y;
}

}  // namespace weft::collective
