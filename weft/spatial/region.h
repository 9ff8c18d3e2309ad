// A halo region: consecutive layers that share one exchange of a halo wide enough for all of them.
//
// Every layer computes its tile and the surrounding cells that later layers need. Adjacent ranks both compute the cells
// at their common edge, but wait for messages only once. Each layer pads the field itself: cells outside the field are
// padding, not results of the previous layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Returns true if windows need cells of other tiles on a grid of these extents.
[[nodiscard]] bool needs_halo(const std::vector<partition::Window>& windows, const Sizes& extents);
// Reads windows in `dims` dimensions from six numbers each: kernel, stride, padding before and after, dilation,
// ceil_mode. Returns none for no numbers. Throws (TORCH_CHECK) for other counts.
[[nodiscard]] std::vector<partition::Window> windows_of_numbers(const Sizes& numbers, std::size_t dims);

// A layer of a region: it has windows, or it is elementwise.
struct RegionLayer {
  std::vector<partition::Window> windows{};  // by dimension; empty for elementwise layers
  double fill = 0;                           // value of the cells outside the field
  std::int64_t channels = 0;                 // of the output; 0 if the layer keeps the number of channels
  std::vector<at::Tensor> weights{};
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights, const Sizes& native_padding)>
      apply{};
};

// Returns a convolution or a max pooling with these windows. The caller sets the convolution's weights and channels.
[[nodiscard]] RegionLayer convolution_layer(std::vector<partition::Window> windows, std::int64_t groups);
[[nodiscard]] RegionLayer max_pool_layer(std::vector<partition::Window> windows);

// The cells of each layer of a region on this rank. Created once and reused in every step.
class Region : public torch::CustomClassHolder {
 public:
  // `layers` are the windows, by dimension, of the layers that have windows. Throws std::invalid_argument if a window
  // does not fit or if a layer's tile contains only padding.
  Region(const LayoutPtr& inputs, const std::vector<std::vector<partition::Window>>& layers);

  [[nodiscard]] const HaloPlanPtr& plan() const noexcept { return plan_; }
  [[nodiscard]] const LayoutPtr& outputs() const noexcept { return outputs_; }
  // Returns the windows of a layer.
  [[nodiscard]] const std::vector<partition::Window>& windows(std::size_t layer) const { return windows_.at(layer); }
  // Runs a layer with windows on the results of the previous one, or of the exchange. Pads them at the field's border.
  [[nodiscard]] at::Tensor run_layer(std::size_t i, at::Tensor x, const RegionLayer& layer,
                                     const std::vector<at::Tensor>& weights) const;

 private:
  HaloPlanPtr plan_;
  LayoutPtr outputs_;
  std::vector<std::vector<partition::Window>> windows_;
  std::vector<Sizes> padding_;  // of each layer's inputs, last dimension first; the exchange pads the first layer
  std::vector<Sizes> native_;   // padding that each layer's kernel adds in dimensions that are not cut
};

using RegionPtr = c10::intrusive_ptr<Region>;

// Runs the layers in sequence. Shares all their weights (share.h) in one message. Collective.
[[nodiscard]] DistTensor run_region(const DistTensor& x, const Region& region, const std::vector<RegionLayer>& layers);

}  // namespace weft::spatial
