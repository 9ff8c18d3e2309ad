#include "weft/experiment/layers/window.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class AveragePoolSettings final : public PoolSettings {
 public:
  AveragePoolSettings(Fields& fields, LayerListReader& /*lists*/)
      : PoolSettings(read_window(fields, {})), counts_padding_(fields.boolean("count_include_pad").value_or(true)) {}
  AveragePoolSettings(Fields& fields, NeonLayer& layer) : PoolSettings(read_neon_pool(fields, layer)) {}

 private:
  [[nodiscard]] spatial::nn::LayerPtr pool(spatial::PoolingOptions options) const override {
    options.count_include_pad = counts_padding_;
    return spatial::nn::on_tiles("average pooling",
                                 [options](const spatial::DistTensor& x) { return spatial::average_pool(x, options); });
  }

  bool counts_padding_ = true;
};

const RegisterLayerType kAveragePoolRegistered(
    layer_type<AveragePoolSettings>("average_pool", "kernel", {{"neon.models.layer.AveragePoolingLayer"}}));

}  // namespace
}  // namespace weft::experiment
