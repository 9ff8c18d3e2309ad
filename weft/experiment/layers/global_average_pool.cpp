#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

// The mean of each map, on every rank.
class GlobalAveragePoolSettings final : public LayerSettings {
 public:
  GlobalAveragePoolSettings(Fields& /*fields*/, LayerListReader& /*lists*/) {}

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& /*problems*/) const override {
    return {sizes.in.maps, {}};
  }
  [[nodiscard]] bool output_is_whole(bool /*input_is_whole*/, bool /*linear_follows*/) const override { return true; }
  [[nodiscard]] BuiltLayer build(const LayerContext& /*context*/) const override {
    return {
        spatial::nn::on_tiles("global average pooling",
                              [](const spatial::DistTensor& x) { return spatial::global_average_pool(x).flatten(1); }),
        nullptr};
  }
};

const RegisterLayerType kGlobalAveragePoolRegistered(layer_type<GlobalAveragePoolSettings>("global_average_pool"));

}  // namespace
}  // namespace weft::experiment
