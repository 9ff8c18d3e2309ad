// The autograd node of a tile's convolution: the halo's gradient leaves before the weights' gradient is computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace weft::spatial {

// As at::convolution takes it, without transposition.
struct Kernel {
  at::Tensor weight;
  std::optional<at::Tensor> bias;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
  std::int64_t groups;
};

[[nodiscard]] at::Tensor apply_kernel(const at::Tensor& padded, const Kernel& kernel);

// Makes `y`, computed without gradients, the convolution of `padded`, which a recorded exchange made.
void record_convolution(const at::Tensor& padded, const Kernel& kernel, const at::Tensor& y);

}  // namespace weft::spatial
