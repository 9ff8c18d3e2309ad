#include "weft/spatial/kernel.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>

namespace weft::spatial {
namespace {

using at::Tensor;

std::vector<std::int64_t> result_sizes(const Tensor& x, const Kernel& kernel) {
  std::vector<std::int64_t> sizes{x.size(0), kernel.weight.size(0)};
  for (std::size_t i = 0; i < kernel.stride.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    const std::int64_t reach = kernel.dilation[i] * (kernel.weight.size(dim) - 1);
    sizes.push_back((x.size(dim) + 2 * kernel.padding[i] - reach - 1) / kernel.stride[i] + 1);
  }
  return sizes;
}

}  // namespace

Tensor Kernel::apply(const Tensor& x) const {
  if (x.is_meta()) return at::empty(result_sizes(x, *this), x.options());
  const std::vector<std::int64_t> no_output_padding(stride.size(), 0);
  return at::convolution(x, weight, bias, stride, padding, dilation, /*transposed=*/false, no_output_padding, groups);
}

std::tuple<Tensor, Tensor, Tensor> Kernel::backward(const Tensor& g, const Tensor& x,
                                                    std::array<bool, 3> wanted) const {
  const std::vector<std::int64_t> no_output_padding(stride.size(), 0);
  const std::vector<std::int64_t> bias_sizes{weight.size(0)};
  return at::convolution_backward(g, x, weight, at::OptionalIntArrayRef(bias_sizes), stride, padding, dilation,
                                  /*transposed=*/false, no_output_padding, groups, wanted);
}

Kernel Kernel::padded_by(std::vector<std::int64_t> other) const {
  Kernel result = *this;
  result.padding = std::move(other);
  return result;
}

}  // namespace weft::spatial
