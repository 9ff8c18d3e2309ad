#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/activation.h"
#include "weft/experiment/layers/weights.h"
#include "weft/experiment/layers/window.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class ConvolutionSettings final : public LayerSettings {
 public:
  ConvolutionSettings(Fields& fields, LayerListReader& /*lists*/) : window_(read_window(fields, {1, 1})) {
    window_.dilation = pair_of(fields.sizes("dilation"), {1, 1});
    groups_ = fields.integer("groups", kSize).value_or(1);
    weights_ = read_weights(fields, "maps");
    activation_ = read_activation(fields, "linear");
  }

  ConvolutionSettings(Fields& fields, NeonLayer& layer)
      : window_(read_neon_window(fields, layer)),
        weights_(read_neon_weights(fields, layer, "nofm")),
        activation_(read_neon_activation(fields)) {}

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Activation activation() const override { return activation_; }

  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    require_groups(groups_, sizes.in.maps, weights_.outputs, problems);
    return window_.output(weights_.outputs, sizes.in, problems);
  }

  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override {
    return weight_count(weights_, saturating_product({sizes.in.maps / groups_, window_.cells()}));
  }

  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    const std::int64_t maps = context.sizes.in.maps / groups_;
    const auto parameters = drawn_filters(
        context, weights_, {weights_.outputs, maps, window_.kernel[0], window_.kernel[1]}, maps * window_.cells());
    const auto layer = spatial::nn::convolution(
        parameters[0].value, bias_of(parameters),
        {.stride = window_.stride, .padding = window_.padding, .dilation = window_.dilation, .groups = groups_});
    layer->set_parameters(parameters);
    return {with_activation(layer, activation_), context.mesh.layout(context.sizes.out.shape)};
  }

 private:
  WindowSettings window_;
  std::int64_t groups_ = 1;
  WeightSettings weights_;
  Activation activation_;
};

const RegisterLayerType kConvolutionRegistered(layer_type<ConvolutionSettings>("conv", "",
                                                                               {{"neon.models.layer.ConvLayer"}}));

}  // namespace
}  // namespace weft::experiment
