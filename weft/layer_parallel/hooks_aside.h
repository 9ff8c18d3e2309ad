// HooksAside: removes the hooks of leaf tensors for a while.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>
#include <vector>

#include "weft/layer_parallel/layer.h"

namespace weft::layer_parallel {

// Removes the hooks of leaf tensors while it is alive. They run when autograd accumulates the gradient that a pass
// returns, and must not run for the products inside the pass, too.
class HooksAside {
 public:
  HooksAside() = default;
  ~HooksAside() {
    for (auto& [tensor, hooks] : taken_) torch::autograd::impl::hooks(tensor) = std::move(hooks);
  }
  HooksAside(const HooksAside&) = delete;
  HooksAside& operator=(const HooksAside&) = delete;

  void take(const Tensors& tensors) {
    for (const auto& tensor : tensors) {
      if (!tensor.requires_grad() || !tensor.is_leaf()) continue;
      auto& hooks = torch::autograd::impl::hooks(tensor);
      if (!hooks.empty()) taken_.emplace_back(tensor, std::exchange(hooks, {}));
    }
  }

 private:
  std::vector<std::pair<at::Tensor, std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>>> taken_;
};

}  // namespace weft::layer_parallel
