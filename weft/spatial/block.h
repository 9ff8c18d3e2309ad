// A Sequential that another Sequential can hold: torch's own has a forward that its containers cannot store.
#pragma once

#include <torch/nn/modules/container/sequential.h>

namespace weft::spatial {

// parallelize looks into it, as it does not into modules with a forward of their own.
struct BlockImpl final : torch::nn::SequentialImpl {
  using torch::nn::SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return torch::nn::SequentialImpl::forward(x); }
};
TORCH_MODULE(Block);

}  // namespace weft::spatial
