// The kernel of a convolution: weights, stride, padding, dilation and groups. Not transposed.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "weft/spatial/exchange/sizes.h"

namespace weft::spatial {

struct Kernel {
  at::Tensor weight{};
  std::optional<at::Tensor> bias{};
  Sizes stride{};
  Sizes padding{};
  Sizes dilation{};
  std::int64_t groups = 1;

  // Convolves `x`. Accepts meta tensors, which torch supports in Python only.
  [[nodiscard]] at::Tensor apply(const at::Tensor& x) const;
  // Returns the wanted gradients of input, weight and bias. For the gradient of the input, only the sizes of `x` count.
  [[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& g, const at::Tensor& x,
                                                                        std::array<bool, 3> wanted) const;
  [[nodiscard]] Kernel padded_by(Sizes other) const;
};

}  // namespace weft::spatial
