#include "weft/experiment/layers/window.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class MaxPoolSettings final : public PoolSettings {
 public:
  MaxPoolSettings(Fields& fields, LayerListReader& /*lists*/) : PoolSettings(read_window(fields, {})) {}
  MaxPoolSettings(Fields& fields, NeonLayer& layer) : PoolSettings(read_neon_pool(fields, layer)) {}

 private:
  [[nodiscard]] spatial::nn::LayerPtr pool(spatial::PoolingOptions options) const override {
    return spatial::nn::max_pool(options);
  }
};

const RegisterLayerType kMaxPoolRegistered(layer_type<MaxPoolSettings>("max_pool", "kernel",
                                                                       {{"neon.models.layer.MaxPoolingLayer"}}));

}  // namespace
}  // namespace weft::experiment
