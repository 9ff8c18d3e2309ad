#include "weft/collective/autograd/backward.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <string>
#include <string_view>
#include <unordered_set>

#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/node.h"
#include "weft/collective/autograd/tape.h"

namespace weft::collective {
namespace {

using at::Tensor;

struct AnchorNode final : torch::autograd::Node {
  variable_list apply(variable_list&& g) override { return {g[0], Tensor()}; }
  [[nodiscard]] std::string name() const override { return "weft::AnchorBackward"; }
};

// Returns an alias of `x` without history. Unlike detach(), it keeps forward-mode derivatives and the history of outer
// transforms of torch.func.
Tensor without_history(const Tensor& x) {
  Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    y = at::alias(x);
  }
  torch::autograd::impl::set_version_counter(y, torch::autograd::impl::version_counter(x));
  if (torch::autograd::isFwGradDefined(x))
    y._set_fw_grad(x._fw_grad(/*level=*/0), /*level=*/0, /*is_inplace_op=*/false);
  return y;
}

// Returns a tensor equal to `x` that depends on all recorded operations.
Tensor join(const Tensor& x) {
  Tape& tape = Tape::current();
  if (tape.empty() || !c10::GradMode::is_enabled()) return x;
  auto node = c10::make_intrusive<AnchorNode>();
  node->set_next_edges({torch::autograd::impl::gradient_edge(x), tape.token()});
  Tensor y = without_history(x);
  torch::autograd::set_history(y, node);
  return y;
}

struct Root {
  Tensor loss;
  Tensor gradient;
};

Root root_for(const std::optional<Tensor>& loss, const std::optional<Tensor>& gradient) {
  const Tensor start = loss && loss->defined() ? *loss : at::zeros({});
  TORCH_CHECK(gradient.has_value() || start.numel() == 1, "weft: the loss has ", start.numel(),
              " elements; expected one element, or a gradient for it");
  const at::AutoGradMode grad_mode(true);
  return {join(start), gradient ? *gradient : at::ones_like(start)};
}

// Resets the tape if `run` throws, and raises an alarm on the ranks that would otherwise wait for this one.
template <class Run>
auto guarded(Run&& run) {
  Tape& tape = Tape::current();
  Tape recorded = tape;                // backward empties the tape, but a failure needs the recorded communicators
  static_cast<void>(take_informed());  // a plain backward pass in C++ leaves it behind
  try {
    return run();
  } catch (const std::exception& error) {
    recorded.raise_alarm(message_of(error), take_informed());
    tape.reset();
    throw;
  }
}

// Called after a backward pass from `roots` that weft did not start has failed: other ranks wait for the operations
// that this rank did not reach.
void abandon_backward(const std::vector<Tensor>& roots, std::string_view cause) {
  const std::int64_t informed = take_informed();
  std::vector<torch::autograd::Node*> todo;
  for (const Tensor& root : roots) {
    if (root.defined() && root.grad_fn()) todo.push_back(root.grad_fn().get());
  }
  std::unordered_set<torch::autograd::Node*> seen(todo.begin(), todo.end());
  while (!todo.empty()) {
    torch::autograd::Node* node = todo.back();
    todo.pop_back();
    if (auto* operation = dynamic_cast<OperationNode*>(node)) operation->abandon(std::string(cause), informed);
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second) todo.push_back(edge.function.get());
    }
  }
}

}  // namespace

Tensor anchor(const Tensor& x) {
  TORCH_CHECK(x.defined() && torch::autograd::isDifferentiableType(x.scalar_type()),
              "weft: anchor expects a tensor of a floating-point or complex type");
  Tensor joined = join(x);
  Tape::current().reset();
  return joined;
}

void backward(const std::optional<Tensor>& loss, const std::optional<Tensor>& gradient, bool retain_graph,
              bool create_graph) {
  guarded([&] {
    const Root root = root_for(loss, gradient);
    if (!root.loss.requires_grad()) return;  // no communication and no dependency on parameters
    torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(root.loss)},
                                                          {root.gradient}, retain_graph || create_graph, create_graph,
                                                          /*accumulate_grad=*/true);
  });
}

std::vector<Tensor> grad(const std::optional<Tensor>& loss, const std::vector<Tensor>& inputs,
                         const std::optional<Tensor>& gradient, bool retain_graph, bool create_graph) {
  return guarded([&] {
    torch::autograd::edge_list targets;
    for (const auto& input : inputs) {
      TORCH_CHECK(input.requires_grad(), "weft: grad expects inputs that require grad");
      targets.push_back(torch::autograd::impl::gradient_edge(input));
    }
    targets.push_back(Tape::current().end_in_leaf());
    const Root root = root_for(loss, gradient);
    std::vector<Tensor> result(inputs.size());
    if (root.loss.requires_grad()) {
      result = torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(root.loss)},
                                                                     {root.gradient}, retain_graph || create_graph,
                                                                     create_graph,
                                                                     /*accumulate_grad=*/false, targets);
      result.resize(inputs.size());
    }
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (!result[i].defined()) result[i] = at::zeros_like(inputs[i]);
    }
    return result;
  });
}

namespace {

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("anchor(Tensor x) -> Tensor", &anchor);
  m.def("backward(Tensor? loss, Tensor? gradient, bool retain_graph, bool create_graph) -> ()", &backward);
  m.def("grad(Tensor? loss, Tensor[] inputs, Tensor? gradient, bool retain_graph, bool create_graph) -> Tensor[]",
        &grad);
  m.def("abandon_backward(Tensor[] roots, str cause) -> ()", &abandon_backward);
}

}  // namespace
}  // namespace weft::collective
