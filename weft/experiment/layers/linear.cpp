#include "weft/experiment/layers/linear.h"

#include <algorithm>

#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

// Returns [outputs, maps, rows, columns] for a field, or [outputs, values] for a vector.
Sizes weight_shape(std::int64_t outputs, const Extent& in) {
  Sizes shape{outputs, in.maps};
  shape.insert(shape.end(), in.shape.begin(), in.shape.end());
  return shape;
}

const RegisterLayerType kLinearRegistered(layer_type<LinearSettings>("linear", "outputs",
                                                                     {{"neon.models.layer.Layer", true},
                                                                      {"neon.models.layer.LayerWithNoBias"}}));

}  // namespace

LinearSettings::LinearSettings(Fields& fields, LayerListReader& /*lists*/)
    : weights(read_weights(fields, "outputs")), activation_(read_activation(fields, "linear")) {}

LinearSettings::LinearSettings(Fields& fields, NeonLayer& layer)
    : weights(read_neon_weights(fields, layer, "nout")), activation_(read_neon_activation(fields)) {
  layer.spec.declared_inputs = fields.integer("nin", kSize);
  layer.spec.counts_bias = layer.has_bias;
  static_cast<void>(fields.integer("nofm", kSize));  // accepted and ignored
}

BuiltLayer LinearSettings::build(const LayerContext& context) const {
  const std::int64_t inputs = context.sizes.in.values();
  const spatial::LayoutPtr outputs =
      context.inputs && context.outputs_in_parts ? context.mesh.layout({weights.outputs}) : nullptr;
  auto generator = layer_generator(context.seed, context.number);
  const Sizes shape = weight_shape(weights.outputs, context.sizes.in);
  const at::Tensor weight =
      initial_weights(weights.init, {weights.outputs, inputs}, inputs, context.type, generator).view(shape);
  partition::Box part = partition::Box::whole(shape);
  if (context.inputs) {
    const partition::Box tile = context.inputs->tile();
    std::copy(tile.ranges.begin(), tile.ranges.end(), part.ranges.end() - static_cast<std::ptrdiff_t>(tile.dims()));
  }
  std::vector parameters{spatial::nn::cut_parameter(context.spec.name + ".weight", weight, part)};
  if (weights.bias) {
    const at::Tensor bias = initial_biases(weights.init, weights.outputs, inputs, context.type, generator);
    part = outputs ? outputs->tile() : partition::Box::whole({weights.outputs});
    parameters.push_back(spatial::nn::cut_parameter(context.spec.name + ".bias", bias, part));
  }
  const auto layer = spatial::nn::linear(parameters[0].value, bias_of(parameters), outputs);
  layer->set_parameters(parameters);
  return {with_activation(layer, activation_), outputs};
}

}  // namespace weft::experiment
