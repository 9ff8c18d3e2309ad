#include "weft/spatial/contrast.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include "weft/spatial/convolution/convolution.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {
namespace {

using at::Tensor;

// Returns weights [1, channels, kernel...] that sum to 1.
Tensor gaussian(const std::vector<std::int64_t>& kernel, const Tensor& like) {
  double corner = 0;  // squared distance from the center to a corner
  for (const std::int64_t k : kernel) corner += static_cast<double>(k / 2) * static_cast<double>(k / 2);
  const double sigma_squared = corner > 0 ? corner / 9 : 1;
  std::vector<std::int64_t> sizes(kernel.size() + 2, 1);
  sizes[1] = like.size(1);
  Tensor weights = at::ones(sizes, like.options().requires_grad(false));
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    std::vector<std::int64_t> view(sizes.size(), 1);
    view[i + 2] = kernel[i];
    const Tensor distance = at::arange(kernel[i], weights.options()).sub(static_cast<double>(kernel[i] / 2));
    weights = weights.mul(distance.mul(distance).div(-2 * sigma_squared).exp().view(view));
  }
  return weights.div(weights.sum());
}

}  // namespace

DistTensor contrast_norm(const DistTensor& x, const std::vector<std::int64_t>& given) {
  x.validate();
  TORCH_CHECK_VALUE(x.leading() == 2,
                    "weft: contrast_norm expects [batch, channels, ...], got a local tensor of sizes ",
                    x.local.sizes());
  const auto kernel = for_each_dim(given, x.dims(), "kernel_size");
  ConvolutionOptions options;
  options.padding.clear();
  for (const std::int64_t k : kernel) {
    TORCH_CHECK_VALUE(k > 0 && k % 2 == 1, "weft: contrast_norm expects odd kernel sizes, got ",
                      at::IntArrayRef(kernel));
    options.padding.push_back(k / 2);
  }
  const Tensor weights = gaussian(kernel, x.local);
  const DistTensor mean = convolution_with_own_weights(x, weights, std::nullopt, options);
  const DistTensor centred{x.local.sub(mean.local), x.layout};
  const DistTensor squares{centred.local.mul(centred.local), x.layout};
  const Tensor variance = convolution_with_own_weights(squares, weights, std::nullopt, options).local;
  const Tensor flat = variance.eq(0);
  return {centred.local.div(variance.masked_fill(flat, 1).sqrt()), x.layout};
}

namespace {

using Sizes = std::vector<std::int64_t>;

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_contrast_norm", [](const Tensor& x, const LayoutPtr& layout, const Sizes& kernel) {
    return contrast_norm({x, layout}, kernel).local;
  });
}

}  // namespace
}  // namespace weft::spatial
