#include "weft/spatial/global_array.h"

#include <c10/util/Exception.h>

#include "weft/partition/window.h"
#include "weft/spatial/exchange/exchange.h"

namespace weft::spatial {
namespace {

constexpr std::int64_t kGlobalArray = 20;  // first number in the key of a cached route; halo.cpp has smaller ones

}  // namespace

GlobalArray GlobalArray::adjust_for_dist(const LayoutPtr& inputs, const Sizes& kernel, const Sizes& stride,
                                         const Sizes& padding) {
  const std::size_t dims = inputs->dims();
  const Sizes kernels = for_each_dim(kernel, dims, "kernel");
  const Sizes strides = for_each_dim(stride, dims, "stride");
  const Sizes paddings = for_each_dim(padding, dims, "padding");
  std::vector<partition::Window> windows;
  Sizes outputs;
  Sizes key{kGlobalArray};
  for (std::size_t i = 0; i < dims; ++i) {
    windows.push_back({kernels[i], strides[i], paddings[i], paddings[i]});
    windows[i].validate();
    outputs.push_back(windows[i].outputs(inputs->shape()[i]));
    TORCH_CHECK_VALUE(outputs[i] > 0, "weft: expected a window that fits into ", inputs->shape()[i],
                      " cells with padding ", paddings[i], " (dimension ", i, "), got one of ", kernels[i]);
    key.insert(key.end(), {kernels[i], strides[i], paddings[i]});
  }
  const auto needed = [&](std::size_t i, const partition::Range& range) { return windows[i].needed(range); };
  return {inputs, halo_by(inputs, outputs, key, needed, partition::Border::kZeros)};
}

at::Tensor GlobalArray::get_fprop_view(const at::Tensor& inputs) const {
  DistTensor{inputs, inputs_}.validate();
  return halo_exchange(inputs, halo_.plan);
}

at::Tensor GlobalArray::get_bprop_view(const at::Tensor& error) const { return halo_accumulate(error, halo_.plan); }

GlobalArray::Sizes GlobalArray::view_shape() const { return halo_.plan->needed().sizes(); }

}  // namespace weft::spatial
