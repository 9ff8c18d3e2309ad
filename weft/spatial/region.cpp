#include "weft/spatial/region.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "weft/spatial/convolution/kernel.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"
#include "weft/spatial/pooling.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Border;
using partition::Box;
using partition::Range;
using partition::Window;
using Windows = std::vector<Window>;

Box inputs_of(const Box& outputs, const LayoutPtr& inputs, const Windows& windows) {
  Box box;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const bool native = pads_natively(inputs, i, windows[i]);
    box.ranges.push_back(native ? Range{0, inputs->shape()[i]} : windows[i].needed(outputs.ranges[i]));
  }
  return box;
}

// Returns the inputs of each layer, including padding, for one rank's tile of results. The first entry is the result of
// the exchange.
std::vector<Box> pulled_back(Box cells, const std::vector<LayoutPtr>& layouts, const std::vector<Windows>& layers) {
  std::vector<Box> needed(layers.size());
  for (std::size_t i = layers.size(); i-- > 0;) {
    needed[i] = inputs_of(cells, layouts[i], layers[i]);
    cells = needed[i].intersect(Box::whole(layouts[i]->shape()));
    if (cells.empty())
      throw std::invalid_argument(
          "weft: the halo region has a layer whose tile contains only padding on some rank; use a shorter region");
  }
  return needed;
}

// Returns the padding from the part inside the field to the needed box, for constant_pad_nd.
Sizes padding_of(const Box& needed, const Sizes& shape) {
  Sizes padding;
  for (std::size_t i = needed.dims(); i-- > 0;) {
    const Range there = needed.ranges[i].intersect({0, shape[i]});
    padding.insert(padding.end(), {there.begin - needed.ranges[i].begin, needed.ranges[i].end - there.end});
  }
  return padding;
}

// A rank without results takes part in the exchange only.
DistTensor nothing(const Tensor& x, const Region& region, const std::vector<RegionLayer>& layers) {
  std::int64_t channels = x.size(1);
  for (const RegionLayer& layer : layers) channels = layer.channels > 0 ? layer.channels : channels;
  return {nothing_like(x, region.outputs()->local_sizes({x.size(0), channels})), region.outputs()};
}

}  // namespace

bool needs_halo(const Windows& windows, const Sizes& extents) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].kernel > 1 && extents[i] > 1) return true;
  }
  return false;
}

Windows windows_of_numbers(const Sizes& numbers, std::size_t dims) {
  TORCH_CHECK_VALUE(numbers.empty() || numbers.size() == 6 * dims, "weft: expected six numbers for each of ", dims,
                    " dimensions of a layer's windows, got ", numbers.size());
  Windows windows;
  for (std::size_t i = 0; i < numbers.size(); i += 6) {
    windows.push_back(
        {numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3], numbers[i + 4], numbers[i + 5] != 0});
  }
  return windows;
}

RegionLayer convolution_layer(Windows windows, std::int64_t groups) {
  const Kernel kernel{.stride = numbers_of(windows, &Window::stride),
                      .dilation = numbers_of(windows, &Window::dilation),
                      .groups = groups};
  const auto apply = [kernel](const Tensor& x, const std::vector<Tensor>& weights, const Sizes& native_padding) {
    Kernel own = kernel.padded_by(native_padding);
    own.weight = weights[0];
    if (weights.size() > 1) own.bias = weights[1];
    return own.apply(x);
  };
  return {.windows = std::move(windows), .apply = apply};
}

RegionLayer max_pool_layer(Windows windows) {
  const auto apply = [windows](const Tensor& x, const auto&, const Sizes& padding) {
    return largest(x, windows, padding);
  };
  return {.windows = windows, .fill = -std::numeric_limits<double>::infinity(), .apply = apply};
}

Region::Region(const LayoutPtr& inputs, const std::vector<Windows>& layers) : windows_(layers) {
  if (layers.empty())
    throw std::invalid_argument("weft: a halo region needs at least one layer with windows (a convolution or pooling)");
  std::vector<LayoutPtr> layouts{inputs};
  for (const Windows& windows : layers) {
    const Halo halo = halo_of(layouts.back(), windows);
    layouts.push_back(halo.outputs);
    native_.push_back(halo.native_padding);
  }
  outputs_ = layouts.back();
  padding_.assign(layers.size(), Sizes(2 * inputs->dims(), 0));
  std::vector<Box> needed;
  for (std::int64_t rank = 0; rank < inputs->grid()->size(); ++rank) {
    const Box tile = outputs_->tiling().tile(rank);
    if (tile.empty()) {
      needed.push_back(Box::whole(Sizes(inputs->dims(), 0)));
      continue;
    }
    const auto boxes = pulled_back(tile, layouts, layers);
    needed.push_back(boxes[0]);
    if (rank != inputs->grid()->rank()) continue;
    for (std::size_t i = 1; i < layers.size(); ++i) padding_[i] = padding_of(boxes[i], layouts[i]->shape());
  }
  plan_ = plan_for(inputs, inputs->tiling().tiles(), std::move(needed), Border::kZeros);
}

Tensor Region::run_layer(std::size_t i, Tensor x, const RegionLayer& layer, const std::vector<Tensor>& weights) const {
  const bool at_border = std::any_of(padding_.at(i).begin(), padding_[i].end(), [](auto cells) { return cells != 0; });
  if (at_border) x = at::constant_pad_nd(x, padding_[i], layer.fill);
  return layer.apply(x, weights, native_[i]);
}

DistTensor run_region(const DistTensor& x, const Region& region, const std::vector<RegionLayer>& layers) {
  std::vector<Tensor> weights;
  for (const RegionLayer& layer : layers) {
    for (const Tensor& weight : layer.weights) weights.push_back(matching(weight, x.local));
  }
  weights = share(weights, x.layout->comm());  // also on ranks without results
  const auto first =
      std::find_if(layers.begin(), layers.end(), [](const auto& layer) { return !layer.windows.empty(); });
  Tensor y = halo_exchange(x.local, region.plan(), first == layers.end() ? 0 : first->fill);
  if (region.outputs()->tile().empty() || y.size(0) == 0) return nothing(y, region, layers);
  std::size_t i = 0;
  auto next = weights.begin();
  for (const RegionLayer& layer : layers) {
    const std::vector<Tensor> own(next, next + std::ssize(layer.weights));
    next += std::ssize(own);
    y = layer.windows.empty() ? layer.apply(y, own, {}) : region.run_layer(i++, y, layer, own);
  }
  return {y, region.outputs()};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.class_<Region>("Region")
      .def("plan", [](const RegionPtr& self) { return self->plan(); })
      .def("outputs", [](const RegionPtr& self) { return self->outputs(); });
  m.def("halo_region", [](const LayoutPtr& layout, const std::vector<Sizes>& layers) {
    std::vector<Windows> windows;
    for (const Sizes& numbers : layers) windows.push_back(windows_of_numbers(numbers, layout->dims()));
    return c10::make_intrusive<Region>(layout, windows);
  });
  // A layer with weights is a convolution, one without is a max pooling.
  m.def("halo_region_layer", [](const RegionPtr& region, std::int64_t i, const Tensor& x,
                                const std::vector<Tensor>& weights, std::int64_t groups) {
    const auto at = static_cast<std::size_t>(i);
    const Windows& windows = region->windows(at);
    return region->run_layer(at, x, weights.empty() ? max_pool_layer(windows) : convolution_layer(windows, groups),
                             weights);
  });
}

}  // namespace weft::spatial
