// GlobalArray: a field in tiles, with the views on which a custom layer computes.
//
// A custom layer, written like a layer of neon, is a function of a whole image. It gets a tile with the cells around
// it. Forward:
//
//   GlobalArray input = GlobalArray::adjust_for_dist(layout, {5, 5}, {1, 1});
//   at::Tensor y = my_filter(input.get_fprop_view(x));      // y: this rank's tile of the outputs, input.outputs()
//
// If `my_filter` consists of torch's operations, autograd does the rest: both views are differentiable, and
// get_bprop_view is the backward of get_fprop_view. A layer with its own backward pass calls it:
//
//   at::Tensor error = input.get_bprop_view(my_filter_backward(output_error, input.get_fprop_view(x)));
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/spatial/dist_tensor.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {

class GlobalArray {
 public:
  // Returns the input of a layer whose windows have this kernel, stride and zero padding. Computes the tiles of the
  // outputs and the cells that each tile needs. Throws (TORCH_CHECK) if the window does not fit. No
  // communication.
  [[nodiscard]] static GlobalArray adjust_for_dist(const LayoutPtr& inputs, const Sizes& kernel, const Sizes& stride,
                                                   const Sizes& padding = {0});

  // Returns the tile with halo and padding: [leading..., view_shape()...] from [leading..., tile...]. Collective.
  [[nodiscard]] at::Tensor get_fprop_view(const at::Tensor& inputs) const;
  // Returns the errors of this rank's tile, including those from the neighbors' halos: the adjoint of get_fprop_view.
  // Collective.
  [[nodiscard]] at::Tensor get_bprop_view(const at::Tensor& error) const;

  [[nodiscard]] const LayoutPtr& inputs() const noexcept { return inputs_; }
  [[nodiscard]] const LayoutPtr& outputs() const noexcept { return halo_.outputs; }
  // Returns the layer's sizes on this rank: neon's ifmshape and ofmshape after adjust_for_dist.
  [[nodiscard]] Sizes view_shape() const;
  [[nodiscard]] Sizes output_shape() const { return halo_.outputs->tile().sizes(); }

 private:
  GlobalArray(LayoutPtr inputs, Halo halo) : inputs_(std::move(inputs)), halo_(std::move(halo)) {}

  LayoutPtr inputs_;
  Halo halo_;
};

}  // namespace weft::spatial
