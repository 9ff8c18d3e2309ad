#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

class DropoutSettings final : public LayerSettings {
 public:
  DropoutSettings(Fields& fields, LayerListReader& /*lists*/) : p_(fields.number("p", kFraction).value_or(0.5)) {}

  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return {spatial::nn::dropout(p_, context.seed + context.number), context.inputs};
  }

 private:
  double p_;
};

const RegisterLayerType kDropoutRegistered(layer_type<DropoutSettings>("dropout", "p"));

}  // namespace
}  // namespace weft::experiment
