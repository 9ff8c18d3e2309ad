#include "weft/spatial/halo.h"

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

#include "weft/spatial/convolution/rim.h"

namespace weft::spatial {
namespace {

using partition::Border;
using partition::Range;
using partition::TransposedWindow;
using partition::Window;

// First number in the key of a cached route; dist_tensor.cpp uses 1 to 4.
constexpr std::int64_t kWindows = 10;
constexpr std::int64_t kTransposedWindows = 11;
constexpr std::int64_t kPaddedWindows = 14;

Sizes outputs_of(const Sizes& shape, const std::vector<Window>& windows) {
  Sizes outputs;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    windows[i].validate();
    outputs.push_back(windows[i].outputs(shape[i]));
    if (outputs.back() > 0) continue;
    throw std::invalid_argument("weft: a window that spans " + std::to_string(windows[i].reach()) +
                                " cells does not fit into " + std::to_string(shape[i]) + " cells with padding " +
                                std::to_string(windows[i].padding_lo) + " and " +
                                std::to_string(windows[i].padding_hi) + " (dimension " + std::to_string(i) + ")");
  }
  return outputs;
}

Sizes key_of(std::int64_t kind, const std::vector<Window>& windows) {
  Sizes key{kind};
  for (const Window& w : windows) {
    key.insert(key.end(), {w.kernel, w.stride, w.padding_lo, w.padding_hi, w.dilation, w.ceil_mode ? 1 : 0});
  }
  return key;
}

}  // namespace

partition::Tiling tile_outputs(const LayoutPtr& inputs, const Sizes& outputs) {
  std::vector<partition::Cuts> cuts;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    cuts.push_back(partition::cut_outputs(inputs->tiling().cuts()[i], outputs[i]));
  }
  return {inputs->tiling().grid(), std::move(cuts)};
}

HaloPlanPtr plan_for(const LayoutPtr& inputs, std::vector<partition::Box> owned, std::vector<partition::Box> needed,
                     Border border) {
  partition::Geometry geometry{std::move(owned), std::move(needed), inputs->shape(),
                               std::vector<Border>(inputs->dims(), border)};
  return c10::make_intrusive<HaloPlan>(inputs->comm(), inputs->grid()->epoch(), std::move(geometry));
}

bool pads_natively(const LayoutPtr& inputs, std::size_t dim, const Window& window, Border border) {
  return inputs->tiling().grid().extents()[dim] == 1 && border == Border::kZeros && !window.ceil_mode &&
         window.padding_lo == window.padding_hi;
}

Halo halo_of(const LayoutPtr& inputs, const std::vector<Window>& windows, Border border) {
  const auto shape = inputs->shape();
  const auto needed = [&](std::size_t i, const Range& outputs) {
    return pads_natively(inputs, i, windows[i], border) ? Range{0, shape[i]} : windows[i].needed(outputs);
  };
  const auto rim = [&](const partition::Tiling& outputs) {
    std::vector<bool> native;
    for (std::size_t i = 0; i < windows.size(); ++i) native.push_back(pads_natively(inputs, i, windows[i], border));
    return rim_of(inputs->tiling(), outputs, windows, native, border, inputs->grid()->rank());
  };
  Halo halo = halo_by(inputs, outputs_of(shape, windows), key_of(kWindows, windows), needed, border, rim);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (pads_natively(inputs, i, windows[i], border)) halo.native_padding[i] = windows[i].padding_lo;
  }
  return halo;
}

Halo padded_halo_of(const LayoutPtr& inputs, const std::vector<Window>& windows) {
  const auto shape = inputs->shape();
  Sizes outputs;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    windows[i].validate();
    outputs.push_back(windows[i].outputs(shape[i]));
    TORCH_CHECK_VALUE(outputs[i] > 0, "weft: a window of ", windows[i].kernel, " cells does not fit into ", shape[i],
                      " cells with padding ", windows[i].padding_lo, " (dimension ", i, ")");
  }
  const auto needed = [&](std::size_t i, const Range& range) { return windows[i].needed(range); };
  return halo_by(inputs, outputs, key_of(kPaddedWindows, windows), needed, Border::kZeros);
}

Halo halo_of(const LayoutPtr& inputs, const std::vector<TransposedWindow>& windows) {
  const auto shape = inputs->shape();
  Sizes outputs;
  Sizes key{kTransposedWindows};
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const TransposedWindow& w = windows[i];
    w.validate();
    outputs.push_back(w.outputs(shape[i]));
    TORCH_CHECK_VALUE(outputs.back() > 0, "weft: transposed windows over ", shape[i],
                      " cells have no outputs in dimension ", i, "; use less padding or a larger kernel");
    key.insert(key.end(), {w.kernel, w.stride, w.padding, w.output_padding, w.dilation});
  }
  return halo_by(
      inputs, outputs, key, [&](std::size_t i, const Range& range) { return windows[i].needed(range, shape[i]); },
      Border::kZeros);
}

at::Tensor nothing_like(const at::Tensor& x, at::IntArrayRef sizes) {
  return x.reshape({-1}).narrow(0, 0, 0).view(sizes);
}

std::vector<Window> windows_of(std::size_t dims, at::IntArrayRef kernel, at::IntArrayRef stride,
                               at::IntArrayRef padding, at::IntArrayRef dilation) {
  const Sizes kernels = for_each_dim(kernel, dims, "kernel_size");
  const Sizes strides = for_each_dim(stride, dims, "stride");
  const Sizes paddings = for_each_dim(padding, dims, "padding");
  const Sizes dilations = for_each_dim(dilation, dims, "dilation");
  std::vector<Window> windows;
  for (std::size_t i = 0; i < dims; ++i)
    windows.push_back({kernels[i], strides[i], paddings[i], paddings[i], dilations[i]});
  return windows;
}

Sizes numbers_of(const std::vector<Window>& windows, std::int64_t Window::* number) {
  Sizes result;
  for (const Window& window : windows) result.push_back(window.*number);
  return result;
}

Sizes for_each_dim(at::IntArrayRef given, std::size_t dims, const char* what) {
  if (given.size() == 1) return Sizes(dims, given[0]);
  TORCH_CHECK_VALUE(given.size() == dims, "weft: expected one or ", dims, " values for ", what, ", got ", given);
  return given.vec();
}

}  // namespace weft::spatial
