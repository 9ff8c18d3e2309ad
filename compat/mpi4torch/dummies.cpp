#include "compat/mpi4torch/dummies.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>

#include "weft/collective/autograd/node.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using torch::autograd::variable_list;
using weft::collective::TensorSpec;

struct JoinNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    variable_list result{gradients[0]};
    for (std::size_t i = 0; i < dummies.size(); ++i) result.push_back(zeros_for(i, gradients[0]));
    return result;
  }

  // With create_graph the zeros depend on the gradient, which preserves the order for the next derivative.
  Tensor zeros_for(std::size_t i, const Tensor& gradient) const {
    if (!next_edge(i + 1).is_valid()) return {};
    const Tensor zeros = light_zeros(dummies[i].sizes, dummies[i].options);
    return gradient.defined() ? join_dummies(zeros, {gradient}) : zeros;
  }

  [[nodiscard]] std::string name() const override { return "mpi4torch::JoinDummiesBackward"; }

  std::vector<TensorSpec> dummies;
};

}  // namespace

Tensor light_zeros(c10::SymIntArrayRef sizes, const at::TensorOptions& options) {
  return at::zeros({}, options).expand_symint(sizes);
}

Tensor join_dummies(const Tensor& loopthrough, const std::vector<Tensor>& dummies) {
  const bool joins = c10::GradMode::is_enabled() &&
                     std::any_of(dummies.begin(), dummies.end(),
                                 [](const Tensor& dummy) { return dummy.defined() && dummy.requires_grad(); });
  if (!joins) return loopthrough;
  TORCH_CHECK(torch::autograd::isDifferentiableType(loopthrough.scalar_type()),
              "mpi4torch: JoinDummies expects a first argument of a floating-point or complex type, got ",
              loopthrough.scalar_type());
  auto node = c10::make_intrusive<JoinNode>();
  torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(loopthrough)};
  for (const auto& dummy : dummies) {
    edges.push_back(torch::autograd::impl::gradient_edge(dummy));
    node->dummies.emplace_back(dummy);
  }
  node->set_next_edges(std::move(edges));
  Tensor joined = loopthrough.detach();
  torch::autograd::set_history(joined, node);
  return joined;
}

namespace {

TORCH_LIBRARY_FRAGMENT(mpi4torch, m) {
  m.def("JoinDummies(Tensor loopthrough, Tensor[] dummies) -> Tensor", &join_dummies);
}

}  // namespace
}  // namespace mpi4torch
