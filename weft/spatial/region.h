// A halo region: consecutive layers behind one exchange, of a halo wide enough for all of them.
//
// Every layer computes, besides its tile, the cells around it that the layers behind need; ranks compute those at their
// common edges twice, and wait for messages once. What lies outside of the field is padding of each layer anew, not a
// value that the layer before would have there, so that results stop at the field's border and are padded again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Which cells each layer of a region has, on this rank. Made once; the same on all ranks up to the rank itself.
class Region : public torch::CustomClassHolder {
 public:
  // The windows of the layers that have some, one for each dimension. Throws std::invalid_argument where one does not
  // fit, or where a layer would see nothing but padding.
  Region(const LayoutPtr& inputs, const std::vector<std::vector<partition::Window>>& layers);

  [[nodiscard]] const HaloPlanPtr& plan() const noexcept { return plan_; }
  [[nodiscard]] const LayoutPtr& outputs() const noexcept { return outputs_; }
  [[nodiscard]] std::size_t layers() const noexcept { return native_.size(); }
  // What to add around the inputs of a layer, last dimension first, before and behind. The first has it from the
  // exchange.
  [[nodiscard]] const std::vector<std::int64_t>& padding(std::size_t layer) const { return padding_.at(layer); }
  // What the layer's own kernel pads, in dimensions that are not cut.
  [[nodiscard]] const std::vector<std::int64_t>& native_padding(std::size_t layer) const { return native_.at(layer); }

 private:
  HaloPlanPtr plan_;
  LayoutPtr outputs_;
  std::vector<std::vector<std::int64_t>> padding_;
  std::vector<std::vector<std::int64_t>> native_;
};

using RegionPtr = c10::intrusive_ptr<Region>;

// A layer with windows, or without for what looks at each cell by itself.
struct RegionLayer {
  bool has_windows = true;
  double fill = 0;            // of what lies outside of the field
  std::int64_t channels = 0;  // of the results; 0 for as many as there were
  std::function<at::Tensor(const at::Tensor& x, const std::vector<std::int64_t>& native_padding)> apply;
};

// The layers one after the other. Weights that they use must be shared. Collective.
[[nodiscard]] DistTensor run_region(const DistTensor& x, const Region& region, const std::vector<RegionLayer>& layers);

}  // namespace weft::spatial
