#include "weft/spatial/global_array.h"

#include "weft/spatial/exchange/exchange.h"

namespace weft::spatial {
GlobalArray GlobalArray::adjust_for_dist(const LayoutPtr& inputs, const Sizes& kernel, const Sizes& stride,
                                         const Sizes& padding) {
  return {inputs, padded_halo_of(inputs, windows_of(inputs->dims(), kernel, stride, padding))};
}

at::Tensor GlobalArray::get_fprop_view(const at::Tensor& inputs) const {
  DistTensor{inputs, inputs_}.validate();
  return halo_exchange(inputs, halo_.plan);
}

at::Tensor GlobalArray::get_bprop_view(const at::Tensor& error) const { return halo_accumulate(error, halo_.plan); }

Sizes GlobalArray::view_shape() const { return halo_.plan->needed().sizes(); }

}  // namespace weft::spatial
