#include "weft/layer_parallel/adjoint_step.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

#include "weft/layer_parallel/hooks_aside.h"
#include "weft/layer_parallel/states.h"

namespace weft::layer_parallel {
namespace {

// Returns the gradients of the input of a recorded evaluation, and collects those of the weights.
Tensors vector_jacobian_product(LayerEvaluator& evaluator, std::int64_t layer, const Recorded& recorded,
                                const Tensors& gradient, const WeightGradients* weights) {
  using torch::autograd::impl::gradient_edge;
  torch::autograd::edge_list roots, targets;
  torch::autograd::variable_list seeds;
  for (std::size_t i = 0; i < recorded.output.size(); ++i) {
    if (!recorded.output[i].requires_grad()) continue;
    roots.push_back(gradient_edge(recorded.output[i]));
    seeds.push_back(gradient[i]);
  }
  for (const auto& leaf : recorded.input) targets.push_back(gradient_edge(leaf));
  const auto& parameters = evaluator.layer(layer).parameters;
  std::vector<std::size_t> wanted;  // indices of the parameters and extras that require grad
  const auto ask_for = [&](const at::Tensor& tensor, std::size_t number) {
    if (!tensor.requires_grad()) return;
    wanted.push_back(number);
    targets.push_back(gradient_edge(tensor));
  };
  HooksAside hooks;
  if (weights != nullptr) {
    const Tensors& extras = *weights->extras;
    for (std::size_t i = 0; i < parameters.size(); ++i) ask_for(parameters[i], i);
    for (std::size_t i = 0; i < extras.size(); ++i) ask_for(extras[i], parameters.size() + i);
    hooks.take(parameters);
    hooks.take(extras);
  }
  torch::autograd::variable_list found(targets.size());
  if (!roots.empty()) {
    try {
      // Not the override of Python's engine: it would also set Python's error indicator, and the solve continues.
      found = torch::autograd::Engine::get_default_engine().torch::autograd::Engine::execute(
          roots, seeds, weights == nullptr || weights->keep_graph, /*create_graph=*/false, /*accumulate_grad=*/false,
          targets);
    } catch (...) {
      rethrow_as_layer_error(layer, evaluator.layer(layer));
    }
  }
  const std::size_t inputs = recorded.input.size();
  if (weights != nullptr) {
    Tensors collected(parameters.size() + weights->extras->size());
    for (std::size_t i = 0; i < wanted.size(); ++i) collected[wanted[i]] = found[inputs + i];
    weights->collect(layer, collected);
  }
  found.resize(inputs);
  for (std::size_t i = 0; i < inputs; ++i) {
    if (!found[i].defined()) found[i] = at::zeros_like(recorded.input[i]);
  }
  return found;
}

}  // namespace

Tensors adjoint_step(LayerEvaluator& evaluator, std::int64_t layer, const Recorded& recorded, const Tensors& gradient,
                     double dt, const WeightGradients* weights) {
  const c10::AutoGradMode no_grad(false);
  if (evaluator.layer(layer).form != Form::kResidual) {
    return vector_jacobian_product(evaluator, layer, recorded, gradient, weights);
  }
  // As autograd does in a loop over the layers, so that a converged solve returns the same bits.
  Tensors scaled;
  for (const auto& tensor : gradient) scaled.push_back(at::mul(tensor, dt));
  return advance(gradient, vector_jacobian_product(evaluator, layer, recorded, scaled, weights), 1);
}

}  // namespace weft::layer_parallel
