#include <algorithm>

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/activation.h"
#include "weft/experiment/layers/weights.h"
#include "weft/experiment/layers/window.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class TransposedConvolutionSettings final : public LayerSettings {
 public:
  TransposedConvolutionSettings(Fields& fields, LayerListReader& /*lists*/) : window_(read_window(fields, {1, 1})) {
    window_.dilation = pair_of(fields.sizes("dilation"), {1, 1});
    groups_ = fields.integer("groups", kSize).value_or(1);
    output_padding_ = pair_of(fields.sizes("output_padding", kCount), {0, 0});
    weights_ = read_weights(fields, "maps");
    activation_ = read_activation(fields, "linear");
  }

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Activation activation() const override { return activation_; }

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

  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override {
    return weight_count(weights_, saturating_product({sizes.in.maps / groups_, window_.cells()}));
  }

  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    const std::int64_t maps = weights_.outputs / groups_;
    // Like torch, the fan-in counts the second size of the weights.
    const auto parameters = drawn_filters(
        context, weights_, {context.sizes.in.maps, maps, window_.kernel[0], window_.kernel[1]}, maps * window_.cells());
    const auto layer = spatial::nn::transposed_convolution(
        parameters[0].value, bias_of(parameters),
        {window_.stride, window_.padding, output_padding_, window_.dilation, groups_});
    layer->set_parameters(parameters);
    return {with_activation(layer, activation_), context.mesh.layout(context.sizes.out.shape)};
  }

 private:
  WindowSettings window_;
  std::int64_t groups_ = 1;
  Sizes output_padding_;
  WeightSettings weights_;
  Activation activation_;
};

const RegisterLayerType kTransposedConvolutionRegistered(layer_type<TransposedConvolutionSettings>("conv_transpose"));

}  // namespace
}  // namespace weft::experiment
