#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

// Marks a field as a vector. The values stay in place: fully connected layers read fields directly.
class FlattenSettings final : public LayerSettings {
 public:
  FlattenSettings(Fields& /*fields*/, LayerListReader& /*lists*/) {}

  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& /*problems*/) const override {
    return {sizes.in.maps, sizes.in.shape, !sizes.in.shape.empty()};
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return {std::make_shared<spatial::nn::Sequential>(), context.inputs};
  }
};

const RegisterLayerType kFlattenRegistered(layer_type<FlattenSettings>("flatten"));

}  // namespace
}  // namespace weft::experiment
