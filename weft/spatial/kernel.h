// The kernel of a convolution: its weights and how it walks, without transposition.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace weft::spatial {

struct Kernel {
  at::Tensor weight;
  std::optional<at::Tensor> bias;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
  std::int64_t groups = 1;

  // For tensors without data too, which torch convolves in Python only.
  [[nodiscard]] at::Tensor apply(const at::Tensor& x) const;
  // Gradients of the input, the weight and the bias, as far as `wanted`. `x` need only have the right sizes for the
  // first.
  [[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& g, const at::Tensor& x,
                                                                        std::array<bool, 3> wanted) const;
  [[nodiscard]] Kernel padded_by(std::vector<std::int64_t> other) const;
};

}  // namespace weft::spatial
