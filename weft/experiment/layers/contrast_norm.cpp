#include "weft/spatial/contrast.h"

#include "weft/experiment/file/forms.h"
#include "weft/experiment/layers/window.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class ContrastNormSettings final : public LayerSettings {
 public:
  ContrastNormSettings(Fields& fields, LayerListReader& /*lists*/) : kernel_(pair_of(fields.sizes("kernel"), {3, 3})) {}
  ContrastNormSettings(Fields& fields, NeonLayer& layer) : kernel_(read_neon_pool(fields, layer).kernel) {}

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    require_odd(kernel_, problems);
    return sizes.in;
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return {spatial::nn::on_tiles(
                "contrast normalization",
                [kernel = kernel_](const spatial::DistTensor& x) { return spatial::contrast_norm(x, kernel); }),
            context.inputs};
  }

 private:
  Sizes kernel_;
};

const RegisterLayerType kContrastNormRegistered(layer_type<ContrastNormSettings>("contrast_norm", "kernel",
                                                                                 {{"neon.models.layer.LCNLayer"}}));

}  // namespace
}  // namespace weft::experiment
