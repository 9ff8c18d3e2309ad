#include "weft/experiment/layers/window.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

// The square root of the sum of squares of each window.
class L2PoolSettings final : public PoolSettings {
 public:
  L2PoolSettings(Fields& fields, LayerListReader& /*lists*/) : PoolSettings(read_window(fields, {1, 1})) {}
  L2PoolSettings(Fields& fields, NeonLayer& layer) : PoolSettings(read_neon_pool(fields, layer)) {}

 private:
  [[nodiscard]] spatial::nn::LayerPtr pool(spatial::PoolingOptions options) const override {
    return spatial::nn::on_tiles("L2 pooling",
                                 [options](const spatial::DistTensor& x) { return spatial::norm_pool(x, 2, options); });
  }
};

const RegisterLayerType kL2PoolRegistered(layer_type<L2PoolSettings>("l2_pool", "kernel",
                                                                     {{"neon.models.layer.L2PoolingLayer"}}));

}  // namespace
}  // namespace weft::experiment
