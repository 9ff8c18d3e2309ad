#include "weft/spatial/convolution/kernel.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace weft::spatial {
namespace {

using at::Tensor;

Sizes result_sizes(const Tensor& x, const Kernel& kernel) {
  Sizes sizes{x.size(0), kernel.weight.size(0)};
  for (std::size_t i = 0; i < kernel.stride.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    const std::int64_t reach = kernel.dilation[i] * (kernel.weight.size(dim) - 1);
    sizes.push_back((x.size(dim) + 2 * kernel.padding[i] - reach - 1) / kernel.stride[i] + 1);
  }
  return sizes;
}

Tensor convolve(const Kernel& kernel, const Tensor& x) {
  const Sizes no_output_padding(kernel.stride.size(), 0);
  return at::convolution(x, kernel.weight, kernel.bias, kernel.stride, kernel.padding, kernel.dilation,
                         /*transposed=*/false, no_output_padding, kernel.groups);
}

std::tuple<Tensor, Tensor, Tensor> differentiate(const Kernel& kernel, const Tensor& g, const Tensor& x,
                                                 std::array<bool, 3> wanted) {
  const Sizes no_output_padding(kernel.stride.size(), 0);
  const Sizes bias_sizes{kernel.weight.size(0)};
  return at::convolution_backward(g, x, kernel.weight, at::OptionalIntArrayRef(bias_sizes), kernel.stride,
                                  kernel.padding, kernel.dilation, /*transposed=*/false, no_output_padding,
                                  kernel.groups, wanted);
}

// Returns the number of samples to convolve at a time. torch copies the operands of a convolution to its own memory
// formats and back. For a large batch these copies use half the memory again and miss the cache; for a few samples at a
// time they are almost free.
std::int64_t samples_together(const Tensor& x) {
  constexpr std::int64_t kCached = std::int64_t{8} << 20;
  const std::int64_t batch = x.size(0);
  const bool sums_are_exact_enough = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  if (c10::GradMode::is_enabled() || !x.is_cpu() || !x.is_contiguous() || x.numel() == 0 || !sums_are_exact_enough)
    return batch;
  return std::clamp<std::int64_t>(kCached * batch / static_cast<std::int64_t>(x.nbytes()), 1, batch);
}

void add_to(Tensor& sum, const Tensor& part) {
  if (!part.defined()) return;
  sum = sum.defined() ? sum.add_(part) : part;
}

}  // namespace

Tensor Kernel::apply(const Tensor& x) const {
  if (x.is_meta()) return at::empty(result_sizes(x, *this), x.options());
  const std::int64_t step = samples_together(x);
  if (step == x.size(0)) return convolve(*this, x);
  Tensor y = at::empty(result_sizes(x, *this), x.options());
  for (std::int64_t first = 0; first < x.size(0); first += step) {
    const std::int64_t count = std::min(step, x.size(0) - first);
    y.narrow(0, first, count).copy_(convolve(*this, x.narrow(0, first, count)));
  }
  return y;
}

std::tuple<Tensor, Tensor, Tensor> Kernel::backward(const Tensor& g, const Tensor& x,
                                                    std::array<bool, 3> wanted) const {
  const std::int64_t step = std::min(samples_together(x), samples_together(g));
  if (step == x.size(0)) return differentiate(*this, g, x, wanted);
  Tensor dx = wanted[0] ? at::empty(x.sizes(), x.options()) : Tensor();
  Tensor dw;
  Tensor db;
  for (std::int64_t first = 0; first < x.size(0); first += step) {
    const std::int64_t count = std::min(step, x.size(0) - first);
    const auto [input, weights, biases] =
        differentiate(*this, g.narrow(0, first, count), x.narrow(0, first, count), wanted);
    if (wanted[0]) dx.narrow(0, first, count).copy_(input);
    add_to(dw, weights);
    add_to(db, biases);
  }
  return {dx, dw, db};
}

Kernel Kernel::padded_by(Sizes other) const {
  Kernel result = *this;
  result.padding = std::move(other);
  return result;
}

}  // namespace weft::spatial
