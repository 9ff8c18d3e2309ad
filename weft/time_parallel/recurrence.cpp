#include "weft/time_parallel/recurrence.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

namespace weft::time_parallel {

using at::Tensor;

std::pair<Tensor, Tensors> run_steps(const Tensor& input, Tensors states, const std::optional<Tensor>& lengths,
                                     bool reverse,
                                     const std::function<Tensors(const Tensor& x, const Tensors& states)>& step) {
  const std::int64_t steps = input.size(0);
  Tensors outputs(static_cast<std::size_t>(steps));
  for (std::int64_t i = 0; i < steps; ++i) {
    const std::int64_t t = reverse ? steps - 1 - i : i;
    Tensors next = step(input[t], states);
    Tensor output = next[0];
    if (lengths && lengths->defined()) {
      const Tensor active = lengths->to(input.device()).gt(t).unsqueeze(1);
      for (std::size_t k = 0; k < next.size(); ++k) next[k] = at::where(active, next[k], states[k]);
      output = at::where(active, output, at::zeros_like(output));
    }
    outputs[static_cast<std::size_t>(t)] = output;
    states = std::move(next);
  }
  if (steps == 0) return {input.new_empty({0, states[0].size(0), states[0].size(1)}), states};
  return {at::stack(outputs), states};
}

Tensors differentiable_gradients(const Tensors& inputs, const Tensors& grads, std::size_t count,
                                 const std::function<Tensors()>& forward) {
  const Tensors all = forward();
  Tensors results;
  Tensors given;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!grads[k].defined() || !all[k].requires_grad()) continue;
    results.push_back(all[k]);
    given.push_back(grads[k]);
  }
  Tensors wanted;
  for (const Tensor& x : inputs) {
    if (x.defined() && x.requires_grad()) wanted.push_back(x);
  }
  Tensors gradients(count);
  if (results.empty() || wanted.empty()) return gradients;
  const auto found = torch::autograd::grad(results, wanted, given, /*retain_graph=*/true, /*create_graph=*/true,
                                           /*allow_unused=*/true);
  auto next = found.begin();
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].defined() && inputs[k].requires_grad()) gradients[k] = *next++;
  }
  return gradients;
}

bool needs_gradient(const Tensors& tensors) {
  return at::GradMode::is_enabled() &&
         std::ranges::any_of(tensors, [](const Tensor& x) { return x.defined() && x.requires_grad(); });
}

}  // namespace weft::time_parallel
