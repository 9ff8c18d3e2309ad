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
[[nodiscard]] bool needs_halo(const std::vector<partition::Window>& windows, const std::vector<std::int64_t>& extents);
// Reads windows from six numbers per dimension: kernel, stride, padding before and after, dilation, ceil_mode.
[[nodiscard]] std::vector<partition::Window> windows_of_numbers(const std::vector<std::int64_t>& numbers);

// The cells of each layer of a region on this rank. Created once and reused in every step.
class Region : public torch::CustomClassHolder {
 public:
  // `layers` are the windows, by dimension, of the layers that have windows. Throws std::invalid_argument if a window
  // does not fit or if a layer's tile contains only padding.
  Region(const LayoutPtr& inputs, const std::vector<std::vector<partition::Window>>& layers);

  [[nodiscard]] const HaloPlanPtr& plan() const noexcept { return plan_; }
  [[nodiscard]] const LayoutPtr& outputs() const noexcept { return outputs_; }
  [[nodiscard]] std::size_t layers() const noexcept { return native_.size(); }
  // Returns the padding of a layer's inputs, before and after, last dimension first. The exchange pads the first layer.
  [[nodiscard]] const std::vector<std::int64_t>& padding(std::size_t layer) const { return padding_.at(layer); }
  // Returns the padding that the layer's kernel adds in dimensions that are not cut.
  [[nodiscard]] const std::vector<std::int64_t>& native_padding(std::size_t layer) const { return native_.at(layer); }

 private:
  HaloPlanPtr plan_;
  LayoutPtr outputs_;
  std::vector<std::vector<std::int64_t>> padding_;
  std::vector<std::vector<std::int64_t>> native_;
};

using RegionPtr = c10::intrusive_ptr<Region>;

// A layer with windows, or an elementwise layer.
struct RegionLayer {
  bool has_windows = true;
  double fill = 0;            // value of cells outside the field
  std::int64_t channels = 0;  // channels of the output; 0 if the layer keeps their number
  std::function<at::Tensor(const at::Tensor& x, const std::vector<std::int64_t>& native_padding)> apply;
};

// Runs the layers in sequence. The caller shares their weights (share.h). Collective.
[[nodiscard]] DistTensor run_region(const DistTensor& x, const Region& region, const std::vector<RegionLayer>& layers);

}  // namespace weft::spatial
