// The settings that convolutions and transposed convolutions have in common.
#pragma once

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/activation.h"
#include "weft/experiment/layers/weights.h"
#include "weft/experiment/layers/window.h"

namespace weft::experiment {

class KernelSettings : public LayerSettings {
 public:
  explicit KernelSettings(Fields& fields)
      : window_(read_window(fields, {1, 1})),
        groups_(fields.integer("groups", kSize).value_or(1)),
        weights_(read_weights(fields, "maps")),
        activation_(read_activation(fields, "linear")) {
    window_.dilation = pair_of(fields.sizes("dilation"), {1, 1});
  }
  KernelSettings(Fields& fields, NeonLayer& layer)
      : window_(read_neon_window(fields, layer)),
        weights_(read_neon_weights(fields, layer, "nofm")),
        activation_(read_neon_activation(fields)) {}

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Activation activation() const override { return activation_; }
  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override {
    return weight_count(weights_, saturating_product({sizes.in.maps / groups_, window_.cells()}));
  }

  // Draws weights of the sizes [first, second, kernel...]. Like torch, the fan-in counts all but the first size.
  [[nodiscard]] BuiltLayer build_kernel(const LayerContext& context, std::int64_t first, std::int64_t second) const {
    const Sizes shape{first, second, window_.kernel[0], window_.kernel[1]};
    auto generator = layer_generator(context.seed, context.number);
    const auto parameters =
        drawn_filters(context.spec.name, weights_, shape, second * window_.cells(), context.type, generator);
    const auto layer = convolution(parameters[0].value, bias_of(parameters));
    layer->set_parameters(parameters);
    return {with_activation(layer, activation_), context.mesh.layout(context.sizes.out.shape)};
  }

 protected:
  [[nodiscard]] virtual spatial::nn::LayerPtr convolution(const at::Tensor& weight,
                                                          const std::optional<at::Tensor>& bias) const = 0;

  WindowSettings window_;
  std::int64_t groups_ = 1;
  WeightSettings weights_;

 private:
  Activation activation_;
};

}  // namespace weft::experiment
