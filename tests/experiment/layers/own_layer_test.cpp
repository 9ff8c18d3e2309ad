// A layer type that the library does not know: this program registers it, reads it from YAML and trains it.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "tests/experiment/run/runs.h"
#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/network.h"
#include "weft/spatial/nn/layers.h"
#include "weft/spatial/share.h"

namespace weft::experiment {
namespace {

using testing::HasSubstr;

// Multiplies each map by a trained factor.
class ScaleSettings final : public LayerSettings {
 public:
  ScaleSettings(Fields& fields, LayerListReader& /*lists*/) : factor_(fields.number("factor").value_or(1)) {}

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    if (factor_ == 0) problems.expected("a factor other than 0", "0");
    return sizes.in;
  }
  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override { return sizes.in.maps; }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    const auto options = at::TensorOptions().dtype(context.type);
    const auto factors = spatial::nn::whole_parameter(context.spec.name + ".factors",
                                                      at::full({context.sizes.in.maps, 1, 1}, factor_, options));
    const auto layer = spatial::nn::on_tiles("scale", [weight = factors.value](const spatial::DistTensor& x) {
      return spatial::DistTensor{x.local.mul(spatial::share({weight}, x.layout->comm())[0]), x.layout};
    });
    layer->set_parameters({factors});
    return {layer, context.inputs};
  }

 private:
  double factor_;
};

const RegisterLayerType kRegistered(layer_type<ScaleSettings>("scale", "factor"));

constexpr const char* kModel = R"(
split: tiles
model:
  epochs: 1
  batch_size: 8
  optimizer: {type: sgd, rate: 0.05}
  layers:
    - conv: {maps: 3, kernel: 3, padding: 1, activation: tanh}
    - scale: 0.5
    - residual: [scale: {factor: 2, name: inner}]
    - linear: 3
)";

TEST(OwnLayerTest, TrainsAlikeOnEveryNumberOfRanks) {
  Trial split(toy(kModel), world());
  Trial unsplit(toy(kModel), alone());
  const auto costs = split.finish();
  ASSERT_FALSE(costs.empty());
  EXPECT_THAT(costs, testing::Pointwise(testing::DoubleNear(1e-10), unsplit.finish()));
  const auto factors = split.network.parameters(1);
  ASSERT_EQ(factors.size(), 1U);
  EXPECT_EQ(factors[0]->name, "layer1.factors");
  EXPECT_FALSE(factors[0]->value.eq(0.5).any().item<bool>()) << "training did not change the factors";
  EXPECT_EQ(split.network.parameters(2)[0]->name, "layer2.inner.factors");
}

TEST(OwnLayerTest, IsInTheTableOfCheck) {
  const auto rows = explain(toy(kModel), {});
  EXPECT_EQ(rows[1].kind, "scale");
  EXPECT_EQ(rows[1].parameters, 3);
}

std::string error_of(const std::string& layer) {
  try {
    static_cast<void>(toy("model:\n  layers:\n    - " + layer + "\n    - linear: 3\n"));
  } catch (const ExperimentError& error) {
    return error.what();
  }
  return "";
}

TEST(OwnLayerTest, ReportsMistakesLikeBuiltInLayers) {
  EXPECT_THAT(error_of("scal: 2"), HasSubstr("toy.yaml:6:7: unknown layer type 'scal'; did you mean 'scale'?"));
  EXPECT_THAT(error_of("scale: {facto: 2}"), HasSubstr("unknown key 'facto' in a layer scale; did you mean 'factor'?"));
  EXPECT_THAT(error_of("scale: 0"), HasSubstr("expected a factor other than 0 in layer 'layer0', got 0"));
}

TEST(OwnLayerTest, RejectsASecondTypeOfTheSameName) {
  EXPECT_THROW(register_layer_type(layer_type<ScaleSettings>("scale")), std::invalid_argument);
  EXPECT_THROW(register_layer_type(layer_type<ScaleSettings>("conv")), std::invalid_argument);
}

}  // namespace
}  // namespace weft::experiment
