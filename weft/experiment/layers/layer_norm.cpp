// Layer normalization: statistics of all values of each image.
#include <ATen/ops/layer_norm.h>

#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/image_norm.h"
#include "weft/spatial/nn/layers.h"
#include "weft/spatial/normalization.h"

namespace weft::experiment {
namespace {

class LayerNormSettings final : public LayerSettings {
 public:
  LayerNormSettings(Fields& fields, LayerListReader& /*lists*/) : affine_(read_affine(fields, true)) {}

  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override {
    return affine_.wanted ? saturating_product({2, sizes.in.values()}) : 0;
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    Sizes shape{context.sizes.in.maps};
    shape.insert(shape.end(), context.sizes.in.shape.begin(), context.sizes.in.shape.end());
    const auto parameters = affine_parameters(context, affine_, shape);
    const auto layer = spatial::nn::function_layer(
        [shape, affine = affine_tensors(parameters), epsilon = affine_.epsilon](
            const spatial::nn::Activations& x, const spatial::nn::ForwardContext&) -> spatial::nn::Activations {
          if (const auto* tiles = std::get_if<spatial::DistTensor>(&x))
            return spatial::layer_norm(*tiles, shape, affine.weight, affine.bias, epsilon);
          return at::layer_norm(std::get<at::Tensor>(x), shape, affine.weight, affine.bias, epsilon);
        });
    layer->set_parameters(parameters);
    return {layer, context.inputs};
  }

 private:
  AffineSettings affine_;
};

const RegisterLayerType kLayerNormRegistered(layer_type<LayerNormSettings>("layer_norm"));

}  // namespace
}  // namespace weft::experiment
