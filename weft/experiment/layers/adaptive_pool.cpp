#include "weft/experiment/file/forms.h"
#include "weft/experiment/layers/window.h"
#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

using Pool = spatial::DistTensor (*)(const spatial::DistTensor&, const Sizes&);

// Pooling to a given size.
template <Pool kPool>
class AdaptivePoolSettings final : public LayerSettings {
 public:
  AdaptivePoolSettings(Fields& fields, LayerListReader& /*lists*/) {
    fields.require("size");
    size_ = pair_of(fields.sizes("size"), {1, 1});
  }

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    return limit_growth(sizes.in, {sizes.in.maps, size_}, problems);
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return {spatial::nn::on_tiles("adaptive pooling",
                                  [size = size_](const spatial::DistTensor& x) { return kPool(x, size); }),
            context.mesh.layout(context.sizes.out.shape)};
  }

 private:
  Sizes size_;
};

const RegisterLayerType kAdaptiveAveragePoolRegistered(
    layer_type<AdaptivePoolSettings<&spatial::adaptive_average_pool>>("adaptive_average_pool", "size"));
const RegisterLayerType kAdaptiveMaxPoolRegistered(
    layer_type<AdaptivePoolSettings<&spatial::adaptive_max_pool>>("adaptive_max_pool", "size"));

}  // namespace
}  // namespace weft::experiment
