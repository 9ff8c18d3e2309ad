#include "weft/layer_parallel/loss_gradient.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <set>
#include <utility>
#include <vector>

#include "weft/layer_parallel/hooks_aside.h"
#include "weft/layer_parallel/states.h"

namespace weft::layer_parallel {
namespace {

using torch::autograd::Node;

// The leaves that the graph of a tensor accumulates gradients into, in the order of the graph.
Tensors leaves_of(const at::Tensor& value) {
  Tensors leaves;
  std::vector<Node*> open{value.grad_fn().get()};
  std::set<Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) leaves.push_back(leaf->variable);
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
    }
  }
  return leaves;
}

}  // namespace

LossGradient differentiate_loss(const LossFunction& loss, const Tensors& output, partition::Range rows,
                                bool gradients) {
  const c10::AutoGradMode mode(gradients);
  Tensors inputs;
  for (const auto& tensor : output) inputs.push_back(tensor.detach().set_requires_grad(gradients));
  const at::Tensor value = loss(inputs, rows);
  TORCH_CHECK(value.defined() && value.numel() == 1, "weft: expected the loss to be a scalar, got a tensor of shape ",
              value.defined() ? value.sizes() : at::IntArrayRef());
  LossGradient result{.loss = value.detach(), .output_gradient = {}, .leaves = {}, .leaf_gradients = {}};
  if (!gradients) return result;
  for (const auto& tensor : inputs) result.output_gradient.push_back(at::zeros_like(tensor));
  if (!value.requires_grad() || value.is_leaf()) return result;
  torch::autograd::edge_list targets;
  for (const auto& tensor : inputs) targets.push_back(torch::autograd::impl::gradient_edge(tensor));
  for (const auto& leaf : leaves_of(value)) {
    bool is_input = false;
    for (const auto& tensor : inputs) is_input = is_input || leaf.is_same(tensor);
    if (is_input) continue;
    result.leaves.push_back(leaf);
    targets.push_back(torch::autograd::impl::gradient_edge(leaf));
  }
  HooksAside hooks;
  hooks.take(result.leaves);
  const auto found = torch::autograd::Engine::get_default_engine().torch::autograd::Engine::execute(
      {torch::autograd::impl::gradient_edge(value)}, {at::ones_like(value)}, /*keep_graph=*/false,
      /*create_graph=*/false, /*accumulate_grad=*/false, targets);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (found[i].defined()) result.output_gradient[i] = found[i];
  }
  result.leaf_gradients.assign(found.begin() + static_cast<std::ptrdiff_t>(inputs.size()), found.end());
  return result;
}

void add_gradient(const at::Tensor& leaf, const at::Tensor& gradient, Tensors& leaves, Tensors& gradients) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].is_same(leaf)) continue;
    if (gradient.defined()) gradients[i] = gradients[i].defined() ? gradients[i].add(gradient) : gradient;
    return;
  }
  leaves.push_back(leaf);
  gradients.push_back(gradient);
}

}  // namespace weft::layer_parallel
