// GlobalArray: a field that the ranks hold in tiles, with the views that a layer of one's own computes on.
//
// For people who write a layer as neon's users do: a function of a whole image, which is then given a tile with the
// cells around it. Forward:
//
//   GlobalArray input = GlobalArray::adjust_for_dist(layout, {5, 5}, {1, 1});
//   at::Tensor y = my_filter(input.get_fprop_view(x));      // y: this rank's tile of the outputs, input.outputs()
//
// Where `my_filter` is made of torch's operations nothing else is to be done: both views are differentiable, and
// backward through get_fprop_view is get_bprop_view. A layer with a backward pass of its own calls it by hand:
//
//   at::Tensor error = input.get_bprop_view(my_filter_backward(output_error, input.get_fprop_view(x)));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/spatial/dist_tensor.h"
#include "weft/spatial/halo.h"

namespace weft::experiment {

class GlobalArray {
 public:
  using Sizes = std::vector<std::int64_t>;

  // The input of a layer whose windows have this kernel, stride and (zero) padding: finds how its outputs are tiled,
  // and which cells each tile needs. Throws (TORCH_CHECK) where the window does not fit. No communication.
  [[nodiscard]] static GlobalArray adjust_for_dist(const spatial::LayoutPtr& inputs, const Sizes& kernel,
                                                   const Sizes& stride, const Sizes& padding = {0});

  // The tile with its halo, padding included: [leading..., view_shape()...] from [leading..., tile...]. Collective.
  [[nodiscard]] at::Tensor get_fprop_view(const at::Tensor& inputs) const;
  // The errors of the cells of this rank's tile, with what the neighbours' halos found for them added: the adjoint of
  // get_fprop_view. Collective.
  [[nodiscard]] at::Tensor get_bprop_view(const at::Tensor& error) const;

  [[nodiscard]] const spatial::LayoutPtr& inputs() const noexcept { return inputs_; }
  [[nodiscard]] const spatial::LayoutPtr& outputs() const noexcept { return halo_.outputs; }
  // What a layer's own sizes become on this rank: neon's ifmshape and ofmshape after adjust_for_dist.
  [[nodiscard]] Sizes view_shape() const;
  [[nodiscard]] Sizes output_shape() const { return halo_.outputs->tile().sizes(); }

 private:
  GlobalArray(spatial::LayoutPtr inputs, spatial::Halo halo) : inputs_(std::move(inputs)), halo_(std::move(halo)) {}

  spatial::LayoutPtr inputs_;
  spatial::Halo halo_;
};

}  // namespace weft::experiment
