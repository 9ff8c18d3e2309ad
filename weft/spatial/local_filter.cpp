#include "weft/spatial/local_filter.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/unfold_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {
namespace {

using at::Tensor;

struct Filter {
  Halo halo;
  Sizes kernel;
  Sizes stride;
  std::int64_t channels_out;
  std::int64_t channels_in;
  std::int64_t places;  // number of outputs of this rank

  [[nodiscard]] std::size_t dims() const { return kernel.size(); }
  [[nodiscard]] std::int64_t taps() const { return channels_in * c10::multiply_integers(kernel); }
};

Filter filter_of(const LayoutPtr& inputs, const Tensor& weight, const Sizes& stride, const Sizes& padding) {
  const std::size_t dims = inputs->dims();
  TORCH_CHECK_VALUE(static_cast<std::size_t>(weight.dim()) == 2 * dims + 2,
                    "weft: expected weights [channels out, tile..., channels in, kernel...] for ", dims,
                    " dimensions, got ", weight.sizes());
  Filter filter;
  filter.kernel = weight.sizes().slice(dims + 2).vec();
  filter.stride = for_each_dim(stride, dims, "stride");
  filter.halo = padded_halo_of(inputs, spatial::windows_of(dims, filter.kernel, stride, padding));
  filter.channels_out = weight.size(0);
  filter.channels_in = weight.size(static_cast<std::int64_t>(dims) + 1);
  const auto tile = filter.halo.outputs->tile();
  filter.places = tile.volume();
  TORCH_CHECK_VALUE(weight.sizes().slice(1, dims) == at::IntArrayRef(tile.sizes()), "weft: rank ",
                    inputs->comm()->rank(), " computes the outputs ", tile.describe(), ", so its weights must be for ",
                    at::IntArrayRef(tile.sizes()), " places; got ", weight.sizes());
  return filter;
}

// Returns [places, out, in * kernel].
Tensor by_place(const Tensor& weight, const Filter& filter) {
  return weight.reshape({filter.channels_out, filter.places, filter.taps()}).transpose(0, 1);
}

// Returns the windows of a padded tile: [places, batch, in * kernel].
Tensor windows_of(Tensor x, const Filter& filter) {
  for (std::size_t i = 0; i < filter.dims(); ++i) {
    x = x.unfold(static_cast<std::int64_t>(i) + 2, filter.kernel[i], filter.stride[i]);
  }
  // Permutes [batch, in, places..., kernel...] to [places..., batch, in, kernel...].
  const auto dims = static_cast<std::int64_t>(filter.dims());
  Sizes order = dims_between(2, 2 + 2 * dims);
  order.insert(order.begin() + dims, {0, 1});
  const std::int64_t batch = x.size(0);
  return x.permute(order).reshape({filter.places, batch, filter.taps()});
}

// The transpose of windows_of.
Tensor tile_of_windows(const Tensor& windows, const Filter& filter, std::int64_t batch) {
  const auto dims = static_cast<std::int64_t>(filter.dims());
  Sizes sizes = filter.halo.outputs->tile().sizes();
  sizes.push_back(batch);
  sizes.push_back(filter.channels_in);
  sizes.insert(sizes.end(), filter.kernel.begin(), filter.kernel.end());
  Sizes order = dims_between(0, 2 * dims + 2);
  std::rotate(order.begin(), order.begin() + dims, order.begin() + dims + 2);
  Tensor x = windows.view(sizes).permute(order);
  for (std::int64_t i = dims; i-- > 0;) {
    const auto at = static_cast<std::size_t>(i);
    auto whole = x.sizes().slice(0, static_cast<std::size_t>(x.dim() - 1)).vec();
    whole[at + 2] = filter.halo.plan->needed().ranges[at].size();
    x = at::unfold_backward(x, whole, i + 2, filter.kernel[at], filter.stride[at]);
  }
  return x;
}

}  // namespace

LayoutPtr local_filter_outputs(const LayoutPtr& inputs, const Sizes& kernel, const Sizes& stride,
                               const Sizes& padding) {
  return padded_halo_of(inputs, spatial::windows_of(inputs->dims(), kernel, stride, padding)).outputs;
}

DistTensor local_filter(const DistTensor& x, const Tensor& weight, const Sizes& stride, const Sizes& padding) {
  x.validate();
  const Filter filter = filter_of(x.layout, weight, stride, padding);
  TORCH_CHECK_VALUE(x.leading() == 2 && x.local.size(1) == filter.channels_in, "weft: local_filter expects [batch, ",
                    filter.channels_in, ", ...], got ", x.local.sizes());
  const Tensor padded = halo_exchange(x.local, filter.halo.plan);
  const Sizes sizes = filter.halo.outputs->local_sizes({x.local.size(0), filter.channels_out});
  if (c10::multiply_integers(sizes) == 0) return {nothing_like(padded, sizes), filter.halo.outputs};
  const Tensor y = at::bmm(windows_of(padded, filter), by_place(weight, filter).transpose(1, 2));
  return {y.permute({1, 2, 0}).reshape(sizes), filter.halo.outputs};
}

DistTensor local_defilter(const DistTensor& y, const Tensor& weight, const LayoutPtr& inputs, const Sizes& stride,
                          const Sizes& padding) {
  y.validate();
  const Filter filter = filter_of(inputs, weight, stride, padding);
  TORCH_CHECK_VALUE(
      y.leading() == 2 && y.local.size(1) == filter.channels_out && y.layout->tiling() == filter.halo.outputs->tiling(),
      "weft: local_defilter expects the outputs of a filter over ", at::IntArrayRef(inputs->shape()), " with ",
      filter.channels_out, " channels, got ", y.local.sizes());
  const std::int64_t batch = y.local.size(0);
  Tensor padded;
  if (y.local.numel() == 0) {
    Sizes sizes{batch, filter.channels_in};
    for (const auto& range : filter.halo.plan->needed().ranges) sizes.push_back(range.size());
    padded = at::zeros(sizes, y.local.options());
  } else {
    const Tensor codes = y.local.reshape({batch, filter.channels_out, filter.places}).permute({2, 0, 1});
    padded = tile_of_windows(at::bmm(codes, by_place(weight, filter)), filter, batch);
  }
  return {halo_accumulate(padded, filter.halo.plan), inputs};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("local_filter_outputs", &local_filter_outputs);
  m.def("tile_local_filter", &TileOperation<&local_filter>::call);
  m.def("tile_local_defilter", &TileOperation<&local_defilter>::call);
}

}  // namespace weft::spatial
