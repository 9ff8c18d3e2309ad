// Layers whose fields have other sizes than windows and strides give: larger ones, and those of a given size.
#include "weft/experiment/layer.h"
#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/convolution.h"
#include "weft/spatial/interpolation.h"

namespace weft::experiment {
namespace {

class TransposedConvolutionLayer final : public Layer {
 public:
  explicit TransposedConvolutionLayer(const LayerContext& context)
      : spec_(context.spec), options_{spec_.stride, spec_.padding, spec_.output_padding, spec_.dilation, spec_.groups} {
    const Sizes shape{context.sizes.in.maps, spec_.outputs / spec_.groups, spec_.kernel[0], spec_.kernel[1]};
    const std::int64_t fan_in = shape[1] * shape[2] * shape[3];  // as torch counts it, by the weights' second size
    parameters_ = drawn_filters(context, shape, fan_in);
  }

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    const auto bias = spec_.bias ? std::optional<at::Tensor>(parameters_[1].value) : std::nullopt;
    return activated(
        Flow(spatial::transposed_convolution(tiles_of(x, spec_.name), parameters_[0].value, bias, options_)), spec_);
  }

 private:
  LayerSpec spec_;
  spatial::TransposedConvolutionOptions options_;
};

class UpsampleLayer final : public Layer {
 public:
  explicit UpsampleLayer(const LayerContext& context)
      : spec_(context.spec), size_(context.sizes.out.shape), mode_(spatial::parse_resampling(spec_.resampling)) {
    if (spec_.size.empty()) scales_ = std::vector<double>(spec_.scale.begin(), spec_.scale.end());
  }

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    return spatial::interpolate(tiles_of(x, spec_.name), size_, mode_, spec_.align_corners, scales_);
  }

 private:
  LayerSpec spec_;
  Sizes size_;
  spatial::Resampling mode_;
  std::optional<std::vector<double>> scales_;
};

class AdaptivePoolingLayer final : public Layer {
 public:
  explicit AdaptivePoolingLayer(const LayerContext& context) : spec_(context.spec) {}

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    const spatial::DistTensor& tiles = tiles_of(x, spec_.name);
    if (spec_.kind == LayerKind::kAdaptiveMaxPool) return spatial::adaptive_max_pool(tiles, spec_.size);
    return spatial::adaptive_average_pool(tiles, spec_.size);
  }

 private:
  LayerSpec spec_;
};

}  // namespace

LayerPtr make_resizing_layer(const LayerContext& context, spatial::LayoutPtr& layout) {
  layout = context.mesh.layout(context.sizes.out.shape);
  if (context.spec.kind == LayerKind::kTransposedConvolution)
    return std::make_unique<TransposedConvolutionLayer>(context);
  if (context.spec.kind == LayerKind::kUpsample) return std::make_unique<UpsampleLayer>(context);
  return std::make_unique<AdaptivePoolingLayer>(context);
}

}  // namespace weft::experiment
