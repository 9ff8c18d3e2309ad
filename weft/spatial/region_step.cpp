#include "weft/spatial/region_step.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/pooling.h>

#include <algorithm>
#include <limits>

#include "weft/spatial/elementwise.h"
#include "weft/spatial/kernel.h"
#include "weft/spatial/layer_options.h"
#include "weft/spatial/region.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using Sizes = std::vector<std::int64_t>;
using Part = std::optional<RegionPart>;

template <std::size_t D, class Module>
Part convolution_part(const ModulePtr& module) {
  const auto conv = std::dynamic_pointer_cast<Module>(module);
  if (!conv) return std::nullopt;
  const ConvolutionOptions options = convolution_options<D>(conv->options, conv->weight);
  if (options.border != partition::Border::kZeros) return std::nullopt;
  RegionPart part{windows_of(D, conv->weight, options), 0, {conv->weight}, conv->weight.size(0), nullptr};
  if (conv->bias.defined()) part.weights.push_back(conv->bias);
  part.apply = [options](const Tensor& x, const std::vector<Tensor>& weights, const Sizes& padding) {
    const auto bias = weights.size() > 1 ? std::optional<Tensor>(weights[1]) : std::nullopt;
    return Kernel{weights[0], bias, options.stride, padding, options.dilation, options.groups}.apply(x);
  };
  return part;
}

template <std::size_t D, class Module>
Part max_pool_part(const ModulePtr& module) {
  const auto pool = std::dynamic_pointer_cast<Module>(module);
  if (!pool) return std::nullopt;
  const auto windows = windows_of(D, max_pool_options<D>(pool->options));
  return RegionPart{
      windows,
      -std::numeric_limits<double>::infinity(),
      {},
      0,
      [windows](const Tensor& x, const auto&, const Sizes& padding) { return largest(x, windows, padding); }};
}

Part elementwise_part(const ModulePtr& module) {
  const auto function = elementwise_of(module);
  if (!function) return std::nullopt;
  return RegionPart{{}, 0, {}, 0, [function](const Tensor& x, const auto&, const Sizes&) { return function(x); }};
}

// All weights in one message, whether or not this rank has results. By part.
std::vector<std::vector<Tensor>> shared_weights(const std::vector<RegionPart>& parts, const DistTensor& x) {
  std::vector<Tensor> all;
  for (const RegionPart& part : parts) {
    for (const Tensor& weight : part.weights) all.push_back(matching(weight, x.local));
  }
  if (!all.empty()) all = share(all, x.layout->comm());
  std::vector<std::vector<Tensor>> by_part;
  auto next = all.begin();
  for (const RegionPart& part : parts) {
    const auto end = next + std::ssize(part.weights);
    by_part.emplace_back(next, end);
    next = end;
  }
  return by_part;
}

DistTensor run(const DistTensor& x, const std::vector<RegionPart>& parts, const Region& region) {
  const auto weights = shared_weights(parts, x);
  std::vector<RegionLayer> layers;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    layers.push_back({!parts[i].windows.empty(), parts[i].fill, parts[i].channels,
                      [&part = parts[i], &own = weights[i]](const Tensor& y, const Sizes& native_padding) {
                        return part.apply(y, own, native_padding);
                      }});
  }
  return run_region(x, region, layers);
}

}  // namespace

bool RegionPart::exchanges(const LayoutPtr& layout) const {
  const auto& extents = layout->tiling().grid().extents();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].kernel > 1 && extents[i] > 1) return true;
  }
  return false;
}

Part region_part_of(const ModulePtr& module, std::size_t dims) {
  using Maker = Part (*)(const ModulePtr&);
  static constexpr Maker kMakers[] = {
      &convolution_part<1, nn::Conv1dImpl>,
      &convolution_part<2, nn::Conv2dImpl>,
      &convolution_part<3, nn::Conv3dImpl>,
      &max_pool_part<1, nn::MaxPool1dImpl>,
      &max_pool_part<2, nn::MaxPool2dImpl>,
      &max_pool_part<3, nn::MaxPool3dImpl>,
      &elementwise_part,
  };
  for (const Maker make : kMakers) {
    Part part = make(module);
    if (part && (part->windows.empty() || part->windows.size() == dims)) return part;
  }
  return std::nullopt;
}

Run region_step(std::vector<RegionPart> parts, const LayoutPtr& layout, Run one_by_one) {
  std::vector<std::vector<partition::Window>> windows;
  for (const RegionPart& part : parts) {
    if (!part.windows.empty()) windows.push_back(part.windows);
  }
  const auto region = c10::make_intrusive<Region>(layout, windows);
  return [parts = std::move(parts), layout, region, one_by_one = std::move(one_by_one)](const Flow& x) -> Flow {
    const auto* tiles = std::get_if<DistTensor>(&x);
    if (tiles == nullptr || tiles->layout->tiling() != layout->tiling()) return one_by_one(x);
    return run(*tiles, parts, *region);
  };
}

}  // namespace weft::spatial
