#include "weft/experiment/initial_weights.h"
#include "weft/experiment/layer.h"
#include "weft/spatial/contrast.h"
#include "weft/spatial/convolution.h"
#include "weft/spatial/pooling.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

class ConvolutionLayer final : public Layer {
 public:
  explicit ConvolutionLayer(const LayerContext& context) : spec_(context.spec) {
    options_.stride = spec_.stride;
    options_.padding = spec_.padding;
    options_.dilation = spec_.dilation;
    options_.groups = spec_.groups;
    const std::int64_t maps = context.sizes.in.maps / spec_.groups;
    const std::int64_t fan_in = maps * spec_.kernel[0] * spec_.kernel[1];
    parameters_ = drawn_filters(context, {spec_.outputs, maps, spec_.kernel[0], spec_.kernel[1]}, fan_in);
  }

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    const auto bias = spec_.bias ? std::optional<at::Tensor>(parameters_[1].value) : std::nullopt;
    return activated(spatial::convolution(tiles_of(x, spec_.name), parameters_[0].value, bias, options_), spec_);
  }

 private:
  LayerSpec spec_;
  spatial::ConvolutionOptions options_;
};

class PoolingLayer final : public Layer {
 public:
  explicit PoolingLayer(const LayerContext& context) : spec_(context.spec) {
    options_.kernel = spec_.kernel;
    options_.stride = spec_.stride;
    options_.padding = spec_.padding;
    options_.count_include_pad = spec_.counts_padding;
  }

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    const DistTensor& tiles = tiles_of(x, spec_.name);
    if (spec_.kind == LayerKind::kMaxPool) return spatial::max_pool(tiles, options_);
    if (spec_.kind == LayerKind::kAveragePool) return spatial::average_pool(tiles, options_);
    return spatial::norm_pool(tiles, 2, options_);
  }

 private:
  LayerSpec spec_;
  spatial::PoolingOptions options_;
};

class ContrastNormLayer final : public Layer {
 public:
  explicit ContrastNormLayer(const LayerContext& context) : spec_(context.spec) {}

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    return spatial::contrast_norm(tiles_of(x, spec_.name), spec_.kernel);
  }

 private:
  LayerSpec spec_;
};

LayerPtr unplaced(const LayerContext& context) {
  switch (context.spec.kind) {
    case LayerKind::kConvolution:
      return std::make_unique<ConvolutionLayer>(context);
    case LayerKind::kContrastNorm:
      return std::make_unique<ContrastNormLayer>(context);
    default:
      return std::make_unique<PoolingLayer>(context);
  }
}

}  // namespace

std::vector<Parameter> drawn_filters(const LayerContext& context, const Sizes& shape, std::int64_t fan_in) {
  const LayerSpec& spec = context.spec;
  auto generator = layer_generator(context.seed, context.number);
  std::vector<Parameter> drawn{whole_parameter(
      spec.name + ".weight", initial_weights(spec.init, shape, fan_in, context.type, generator), context.rule)};
  if (!spec.bias) return drawn;
  drawn.push_back(whole_parameter(
      spec.name + ".bias", initial_biases(spec.init, spec.outputs, fan_in, context.type, generator), context.rule));
  return drawn;
}

LayerPtr make_windowed_layer(const LayerContext& context, spatial::LayoutPtr& layout) {
  LayerPtr layer = unplaced(context);
  layout = context.mesh.layout(context.sizes.out.shape);  // balanced tiles stay balanced
  return layer;
}

}  // namespace weft::experiment
