#include <algorithm>

#include "weft/experiment/layers/kernel_settings.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class TransposedConvolutionSettings final : public KernelSettings {
 public:
  TransposedConvolutionSettings(Fields& fields, LayerListReader& /*lists*/)
      : KernelSettings(fields), output_padding_(pair_of(fields.sizes("output_padding", kCount), {0, 0})) {}

  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    const Extent& in = sizes.in;
    require_groups(groups_, in.maps, weights_.outputs, problems);
    Extent out{weights_.outputs, in.shape};
    for (std::size_t i = 0; i < in.shape.size(); ++i) {
      if (output_padding_[i] >= std::max(window_.stride[i], window_.dilation[i])) {
        problems.expected("output_padding smaller than stride or dilation", text_of(output_padding_));
        return in;
      }
      out.shape[i] =
          (in.shape[i] - 1) * window_.stride[i] + window_.reach()[i] + output_padding_[i] - 2 * window_.padding[i];
      if (out.shape[i] < 1) {
        problems.expected("padding that is smaller than the outputs", text_of(window_.padding));
        return in;
      }
    }
    return limit_growth(in, out, problems);
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return build_kernel(context, context.sizes.in.maps, weights_.outputs / groups_);
  }

 private:
  [[nodiscard]] spatial::nn::LayerPtr convolution(const at::Tensor& weight,
                                                  const std::optional<at::Tensor>& bias) const override {
    return spatial::nn::transposed_convolution(
        weight, bias, {window_.stride, window_.padding, output_padding_, window_.dilation, groups_});
  }

  Sizes output_padding_;
};

const RegisterLayerType kTransposedConvolutionRegistered(layer_type<TransposedConvolutionSettings>("conv_transpose"));

}  // namespace
}  // namespace weft::experiment
