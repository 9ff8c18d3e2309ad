#include "weft/experiment/layers/kernel_settings.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class ConvolutionSettings final : public KernelSettings {
 public:
  ConvolutionSettings(Fields& fields, LayerListReader& /*lists*/) : KernelSettings(fields) {}
  ConvolutionSettings(Fields& fields, NeonLayer& layer) : KernelSettings(fields, layer) {}

  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    require_groups(groups_, sizes.in.maps, weights_.outputs, problems);
    return window_.output(weights_.outputs, sizes.in, problems);
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return build_kernel(context, weights_.outputs, context.sizes.in.maps / groups_);
  }

 private:
  [[nodiscard]] spatial::nn::LayerPtr convolution(const at::Tensor& weight,
                                                  const std::optional<at::Tensor>& bias) const override {
    return spatial::nn::convolution(
        weight, bias,
        {.stride = window_.stride, .padding = window_.padding, .dilation = window_.dilation, .groups = groups_});
  }
};

const RegisterLayerType kConvolutionRegistered(layer_type<ConvolutionSettings>("conv", "",
                                                                               {{"neon.models.layer.ConvLayer"}}));

}  // namespace
}  // namespace weft::experiment
