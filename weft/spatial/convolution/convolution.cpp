#include "weft/spatial/convolution/convolution.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "weft/spatial/convolution/kernel.h"
#include "weft/spatial/convolution/tile_convolution.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Range;
using partition::TransposedWindow;
using partition::Window;

void require_kernel(const DistTensor& x, const Tensor& weight) {
  x.validate_channels("a convolution");
  const auto dims = static_cast<std::int64_t>(x.dims());
  TORCH_CHECK_VALUE(weight.dim() == dims + 2, "weft: a convolution of tiles in ", dims,
                    " dimensions expects a weight with ", dims + 2, " dimensions, got sizes ", weight.sizes());
}

// If the edges exceed this share of a tile, they cost more than the copy that they save.
constexpr double kMostApart = 0.25;

bool edges_apart(const DistTensor& x, const Halo& halo, Edges edges) {
  if (edges == Edges::kPadded || halo.rim == nullptr || !halo.plan->communicates()) return false;
  // Meta tensors and tracers only support torch's own operations.
  if (x.local.is_meta() || at::isTensorSubclassLike(x.local)) return false;
  return edges == Edges::kApart || halo.rim->heaviest <= kMostApart;
}

DistTensor run(const DistTensor& x, const Tensor& weight, const OptionalTensor& bias,
               const ConvolutionOptions& options) {
  const Halo halo = halo_of(x.layout, windows_of(x.dims(), weight, options), options.border);
  const Kernel kernel{weight,
                      bias,
                      for_each_dim(options.stride, x.dims(), "stride"),
                      halo.native_padding,
                      for_each_dim(options.dilation, x.dims(), "dilation"),
                      options.groups};
  if (edges_apart(x, halo, options.edges)) {
    if (auto y = tile_convolution(x, halo, kernel)) return {*y, halo.outputs};
  }
  const Tensor padded = halo_exchange(x.local, halo.plan);
  if (halo.outputs->tile().empty() || x.local.size(0) == 0) {
    return {nothing_like(padded, halo.outputs->local_sizes({x.local.size(0), weight.size(0)})), halo.outputs};
  }
  return {kernel.apply(padded), halo.outputs};
}

// Crops `reached` to `wanted` and fills the remaining cells with zeros.
Tensor cropped_to(Tensor y, std::int64_t dim, const Range& reached, const Range& wanted) {
  const Range shared = reached.intersect(wanted);
  if (shared.empty()) {
    auto sizes = y.sizes().vec();
    sizes[static_cast<std::size_t>(dim)] = wanted.size();
    return at::zeros(sizes, y.options());
  }
  y = y.narrow(dim, shared.begin - reached.begin, shared.size());
  if (shared == wanted) return y;
  Sizes padding(static_cast<std::size_t>(2 * (y.dim() - dim)), 0);  // last dimension first
  padding[padding.size() - 2] = shared.begin - wanted.begin;
  padding[padding.size() - 1] = wanted.end - shared.end;
  return at::constant_pad_nd(y, padding);
}

Tensor transposed_tile(const Tensor& inputs, const Halo& halo, const std::vector<TransposedWindow>& windows,
                       const Kernel& kernel) {
  const Sizes zeros(windows.size(), 0);
  Tensor y = at::convolution(inputs, kernel.weight, std::nullopt, kernel.stride, zeros, kernel.dilation,
                             /*transposed=*/true, zeros, kernel.groups);
  const auto tile = halo.outputs->tile();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    y = cropped_to(y, static_cast<std::int64_t>(i) + 2, windows[i].reached(halo.plan->needed().ranges[i]),
                   tile.ranges[i]);
  }
  return y;
}

Tensor with_bias(const Tensor& y, const OptionalTensor& bias, std::size_t dims) {
  if (!bias || !bias->defined()) return y;
  Sizes sizes(dims + 1, 1);
  sizes[0] = bias->numel();
  return y.add(bias->view(sizes));
}

Edges parse_edges(const std::string& name) {
  if (name == "auto") return Edges::kAuto;
  if (name == "apart") return Edges::kApart;
  TORCH_CHECK_VALUE(name == "padded", "weft: edges must be 'auto', 'apart' or 'padded', got '", name, "'");
  return Edges::kPadded;
}

}  // namespace

std::vector<Window> windows_of(std::size_t dims, const Tensor& weight, const ConvolutionOptions& options) {
  auto windows = windows_of(dims, weight.sizes().slice(2), options.stride, options.padding, options.dilation);
  if (options.padding_behind.empty()) return windows;
  const Sizes behind = for_each_dim(options.padding_behind, dims, "padding");
  for (std::size_t i = 0; i < dims; ++i) windows[i].padding_hi = behind[i];
  return windows;
}

DistTensor convolution_with_own_weights(const DistTensor& x, const Tensor& weight, const OptionalTensor& bias,
                                        const ConvolutionOptions& options) {
  require_kernel(x, weight);
  return run(x, weight, bias, options);
}

DistTensor convolution(const DistTensor& x, const Tensor& weight, const OptionalTensor& bias,
                       const ConvolutionOptions& options) {
  require_kernel(x, weight);
  const Affine shared = share(weight, bias, x);
  return run(x, *shared.weight, shared.bias, options);
}

DistTensor transposed_convolution(const DistTensor& x, const Tensor& weight, const OptionalTensor& bias,
                                  const TransposedConvolutionOptions& options) {
  require_kernel(x, weight);
  const std::size_t dims = x.dims();
  Kernel kernel{weight,
                std::nullopt,
                for_each_dim(options.stride, dims, "stride"),
                for_each_dim(options.padding, dims, "padding"),
                for_each_dim(options.dilation, dims, "dilation"),
                options.groups};
  const auto output_padding = for_each_dim(options.output_padding, dims, "output_padding");
  std::vector<TransposedWindow> windows;
  for (std::size_t i = 0; i < dims; ++i) {
    windows.push_back({weight.size(static_cast<std::int64_t>(i) + 2), kernel.stride[i], kernel.padding[i],
                       output_padding[i], kernel.dilation[i]});
  }
  const Halo halo = halo_of(x.layout, windows);
  const Affine shared = share(weight, bias, x);
  kernel.weight = *shared.weight;
  const Tensor inputs = halo_exchange(x.local, halo.plan);
  const auto sizes = halo.outputs->local_sizes({x.local.size(0), weight.size(1) * options.groups});
  if (inputs.is_meta()) return {at::empty(sizes, inputs.options()), halo.outputs};
  if (c10::multiply_integers(sizes) == 0) return {nothing_like(inputs, sizes), halo.outputs};
  const Tensor y =
      inputs.numel() == 0 ? at::zeros(sizes, inputs.options()) : transposed_tile(inputs, halo, windows, kernel);
  return {with_bias(y, shared.bias, dims), halo.outputs};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_conv", [](const Tensor& x, const LayoutPtr& layout, const Tensor& weight, const OptionalTensor& bias,
                        Sizes stride, Sizes padding, Sizes padding_behind, Sizes dilation, std::int64_t groups,
                        const std::string& border, const std::string& edges) {
    return unpacked(convolution({x, layout}, weight, bias,
                                {std::move(stride), std::move(padding), std::move(padding_behind), std::move(dilation),
                                 groups, partition::parse_border(border), parse_edges(edges)}));
  });
  m.def("tile_conv_transpose",
        [](const Tensor& x, const LayoutPtr& layout, const Tensor& weight, const OptionalTensor& bias, Sizes stride,
           Sizes padding, Sizes output_padding, Sizes dilation, std::int64_t groups) {
          return unpacked(transposed_convolution(
              {x, layout}, weight, bias,
              {std::move(stride), std::move(padding), std::move(output_padding), std::move(dilation), groups}));
        });
}

}  // namespace weft::spatial
