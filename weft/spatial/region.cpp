#include "weft/spatial/region.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Border;
using partition::Box;
using partition::Range;
using partition::Window;
using Windows = std::vector<Window>;

bool pads_natively(const LayoutPtr& inputs, std::size_t dim, const Window& window) {
  return inputs->tiling().grid().extents()[dim] == 1 && window.padding_lo == window.padding_hi && !window.ceil_mode;
}

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
std::vector<std::int64_t> padding_of(const Box& needed, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> padding;
  for (std::size_t i = needed.dims(); i-- > 0;) {
    const Range there = needed.ranges[i].intersect({0, shape[i]});
    padding.insert(padding.end(), {there.begin - needed.ranges[i].begin, needed.ranges[i].end - there.end});
  }
  return padding;
}

std::vector<LayoutPtr> layouts_of(const LayoutPtr& inputs, const std::vector<Windows>& layers) {
  std::vector<LayoutPtr> layouts{inputs};
  for (const Windows& windows : layers) layouts.push_back(halo_of(layouts.back(), windows).outputs);
  return layouts;
}

std::vector<std::int64_t> native_padding_of(const LayoutPtr& inputs, const Windows& windows) {
  std::vector<std::int64_t> native;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    native.push_back(pads_natively(inputs, i, windows[i]) ? windows[i].padding_lo : 0);
  }
  return native;
}

}  // namespace

bool needs_halo(const Windows& windows, const std::vector<std::int64_t>& extents) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].kernel > 1 && extents[i] > 1) return true;
  }
  return false;
}

Windows windows_of_numbers(const std::vector<std::int64_t>& numbers) {
  TORCH_CHECK_VALUE(numbers.size() % 6 == 0, "weft: expected six numbers per dimension of a window, got ",
                    numbers.size());
  Windows windows;
  for (std::size_t i = 0; i < numbers.size(); i += 6) {
    windows.push_back(
        {numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3], numbers[i + 4], numbers[i + 5] != 0});
  }
  return windows;
}

Region::Region(const LayoutPtr& inputs, const std::vector<Windows>& layers) {
  if (layers.empty())
    throw std::invalid_argument("weft: a halo region needs at least one layer with windows (a convolution or pooling)");
  const auto layouts = layouts_of(inputs, layers);
  outputs_ = layouts.back();
  const std::vector<std::int64_t> zeros(2 * inputs->dims(), 0);
  padding_.assign(layers.size(), zeros);
  std::vector<Box> needed;
  for (std::int64_t rank = 0; rank < inputs->grid()->size(); ++rank) {
    const Box tile = outputs_->tiling().tile(rank);
    if (tile.empty()) {
      needed.push_back(Box::whole(std::vector<std::int64_t>(inputs->dims(), 0)));
      continue;
    }
    const auto boxes = pulled_back(tile, layouts, layers);
    needed.push_back(boxes[0]);
    if (rank != inputs->grid()->rank()) continue;
    for (std::size_t i = 1; i < layers.size(); ++i) padding_[i] = padding_of(boxes[i], layouts[i]->shape());
  }
  for (std::size_t i = 0; i < layers.size(); ++i) native_.push_back(native_padding_of(layouts[i], layers[i]));
  plan_ = plan_for(inputs, needed, Border::kZeros);
}

namespace {

// A rank without results takes part in the exchange only.
DistTensor nothing(const Tensor& x, const Region& region, const std::vector<RegionLayer>& layers) {
  std::vector<std::int64_t> sizes{x.size(0), x.size(1)};
  for (const RegionLayer& layer : layers) sizes[1] = layer.channels > 0 ? layer.channels : sizes[1];
  for (const auto& range : region.outputs()->tile().ranges) sizes.push_back(range.size());
  return {nothing_like(x, sizes), region.outputs()};
}

}  // namespace

DistTensor run_region(const DistTensor& x, const Region& region, const std::vector<RegionLayer>& layers) {
  const auto first = std::find_if(layers.begin(), layers.end(), [](const auto& layer) { return layer.has_windows; });
  Tensor y = halo_exchange(x.local, region.plan(), first == layers.end() ? 0 : first->fill);
  if (region.outputs()->tile().empty() || y.size(0) == 0) return nothing(y, region, layers);
  std::size_t i = 0;
  for (const RegionLayer& layer : layers) {
    if (!layer.has_windows) {
      y = layer.apply(y, {});
      continue;
    }
    const auto& padding = region.padding(i);
    const bool at_border = std::any_of(padding.begin(), padding.end(), [](std::int64_t cells) { return cells != 0; });
    if (at_border) y = at::constant_pad_nd(y, padding, layer.fill);
    y = layer.apply(y, region.native_padding(i++));
  }
  return {y, region.outputs()};
}

namespace {

RegionPtr region_of(const LayoutPtr& layout, const std::vector<std::vector<std::int64_t>>& layers) {
  std::vector<Windows> windows;
  for (const auto& numbers : layers) {
    TORCH_CHECK_VALUE(numbers.size() == 6 * layout->dims(), "weft: expected six numbers for each of ", layout->dims(),
                      " dimensions of a layer's windows, got ", numbers.size());
    windows.push_back(windows_of_numbers(numbers));
  }
  return c10::make_intrusive<Region>(layout, windows);
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.class_<Region>("Region")
      .def("plan", [](const RegionPtr& self) { return self->plan(); })
      .def("outputs", [](const RegionPtr& self) { return self->outputs(); })
      .def("padding", [](const RegionPtr& self, std::int64_t i) { return self->padding(static_cast<std::size_t>(i)); })
      .def("native_padding",
           [](const RegionPtr& self, std::int64_t i) { return self->native_padding(static_cast<std::size_t>(i)); });
  m.def("halo_region", &region_of);
}

}  // namespace
}  // namespace weft::spatial
