// A torch::nn::Sequential that another one can contain; torch's own has a variadic forward, which containers cannot
// store.
#pragma once

#include <torch/nn/modules/container/sequential.h>

namespace weft::spatial::nn {

// parallelize() splits the modules inside a Block. It rejects other modules with children.
struct BlockImpl final : torch::nn::SequentialImpl {
  using torch::nn::SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return torch::nn::SequentialImpl::forward(x); }
};
TORCH_MODULE(Block);

}  // namespace weft::spatial::nn
