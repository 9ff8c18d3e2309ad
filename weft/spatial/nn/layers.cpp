#include "weft/spatial/nn/layers.h"

#include <ATen/ops/linear.h>

#include "weft/collective/reduce_scatter.h"
#include "weft/spatial/dropout.h"
#include "weft/spatial/linear.h"
#include "weft/spatial/share.h"

namespace weft::spatial::nn {
namespace {

using at::Tensor;
using Forward = std::function<Activations(const Activations&, const ForwardContext&)>;
using FindRegionLayer = std::function<std::optional<RegionLayer>(std::size_t)>;

class FunctionLayer final : public Layer {
 public:
  FunctionLayer(Forward function, FindRegionLayer region_layer)
      : function_(std::move(function)), region_layer_(std::move(region_layer)) {}

  Activations forward(const Activations& x, const ForwardContext& context) override { return function_(x, context); }
  [[nodiscard]] std::optional<RegionLayer> region_layer(std::size_t dims) const override {
    return region_layer_ ? region_layer_(dims) : std::nullopt;
  }

 private:
  Forward function_;
  FindRegionLayer region_layer_;
};

}  // namespace

LayerPtr function_layer(Forward function, FindRegionLayer region_layer) {
  return std::make_shared<FunctionLayer>(std::move(function), std::move(region_layer));
}

LayerPtr on_tiles(std::string name, std::function<Activations(const DistTensor&)> function,
                  FindRegionLayer region_layer) {
  return function_layer([name = std::move(name), function = std::move(function)](
                            const Activations& x, const ForwardContext&) { return function(tiles_of(x, name)); },
                        std::move(region_layer));
}

LayerPtr convolution(const Tensor& weight, const OptionalTensor& bias, const ConvolutionOptions& options) {
  const auto region_layer = [=](std::size_t dims) -> std::optional<RegionLayer> {
    const bool fits =
        options.border == partition::Border::kZeros && weight.dim() == static_cast<std::int64_t>(dims) + 2;
    if (!fits) return std::nullopt;
    RegionLayer layer = convolution_layer(windows_of(dims, weight, options), options.groups);
    layer.channels = weight.size(0);
    layer.weights = {weight};
    if (bias) layer.weights.push_back(*bias);
    return layer;
  };
  return on_tiles(
      "a convolution", [=](const DistTensor& x) { return spatial::convolution(x, weight, bias, options); },
      region_layer);
}

LayerPtr transposed_convolution(const Tensor& weight, const OptionalTensor& bias,
                                const TransposedConvolutionOptions& options) {
  return on_tiles("a transposed convolution",
                  [=](const DistTensor& x) { return spatial::transposed_convolution(x, weight, bias, options); });
}

LayerPtr max_pool(const PoolingOptions& options) {
  return on_tiles(
      "max pooling", [=](const DistTensor& x) { return spatial::max_pool(x, options); },
      [=](std::size_t dims) -> std::optional<RegionLayer> {
        if (options.kernel.size() != dims) return std::nullopt;
        return max_pool_layer(windows_of(dims, options));
      });
}

LayerPtr elementwise(std::function<Tensor(const Tensor&)> function) {
  return function_layer(
      [function](const Activations& x, const ForwardContext&) { return map_local(x, function); },
      [function](std::size_t) {
        return RegionLayer{.apply = [function](const Tensor& x, const auto&, const Sizes&) { return function(x); }};
      });
}

LayerPtr dropout(double p, std::uint64_t seed, bool whole_channels) {
  return function_layer([=](const Activations& x, const ForwardContext& context) -> Activations {
    if (!context.training || p == 0) return x;
    const std::int64_t mask = mask_seed(seed, context.step);
    const std::int64_t first = context.first_image;
    if (const auto* whole = std::get_if<Tensor>(&x)) return spatial::dropout(*whole, p, mask, first);
    if (const auto* flat = std::get_if<Flattened>(&x))
      return Flattened{spatial::dropout(flat->tiles, p, mask, whole_channels, first)};
    return spatial::dropout(std::get<DistTensor>(x), p, mask, whole_channels, first);
  });
}

LayerPtr linear(const Tensor& weight, const OptionalTensor& bias, const LayoutPtr& outputs) {
  return function_layer([=](const Activations& x, const ForwardContext&) -> Activations {
    if (const auto* whole = std::get_if<Tensor>(&x)) return at::linear(whole->flatten(1), weight.flatten(1), bias);
    const auto* flat = std::get_if<Flattened>(&x);
    const DistTensor& tiles = flat != nullptr ? flat->tiles : std::get<DistTensor>(x);
    if (!outputs) return spatial::linear(tiles, weight, bias);
    tiles.validate();
    const Tensor partial = at::linear(tiles.local.flatten(1), matching(weight, tiles.local).flatten(1));
    const Tensor mine = collective::reduce_scatter(partial, outputs->comm(), mpi::ReduceOp::kSum, 1);
    return DistTensor{bias ? mine.add(matching(*bias, mine)) : mine, outputs};
  });
}

}  // namespace weft::spatial::nn
