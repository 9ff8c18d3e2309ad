// Weights of layers: their settings and initial values. Every rank draws the whole tensor, so that values do not depend
// on the number of ranks.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/layer_context.h"

namespace weft::experiment {

struct WeightSettings {
  std::int64_t outputs = 1;  // maps or values
  bool bias = false;
  WeightInit init{};
};

// Reads the number of outputs under the required key `outputs`, `bias` and `weight_init`.
[[nodiscard]] WeightSettings read_weights(Fields& fields, const std::string& outputs);
[[nodiscard]] WeightInit read_init(Fields& fields);
// Reads the weights of a neon layer; neon draws biases like weights unless bias_init is given.
[[nodiscard]] WeightSettings read_neon_weights(Fields& fields, const NeonLayer& layer, const std::string& outputs);

// Returns the number of weights and biases of a layer whose outputs have `inputs` inputs each; saturates.
[[nodiscard]] std::int64_t weight_count(const WeightSettings& settings, std::int64_t inputs);

// Returns the generator of layer number `layer`. Each layer has its own, so that layers do not affect each other's
// values.
[[nodiscard]] at::Generator layer_generator(std::uint64_t seed, std::size_t layer);

// Draws weights. `fan_in` is the number of inputs of one output; kNodeNormalized and kFanIn use it.
[[nodiscard]] at::Tensor initial_weights(const WeightInit& init, const Sizes& shape, std::int64_t fan_in,
                                         at::ScalarType type, at::Generator& generator);
// Returns biases with the value `init.bias`; draws them for kFanIn, like torch, and for `init.draws_bias`.
[[nodiscard]] at::Tensor initial_biases(const WeightInit& init, std::int64_t count, std::int64_t fan_in,
                                        at::ScalarType type, at::Generator& generator);

// Draws the weight `name`.weight of a convolution and, if it has one, its bias. Every rank holds both whole.
[[nodiscard]] std::vector<spatial::nn::Parameter> drawn_filters(const std::string& name, const WeightSettings& settings,
                                                                const Sizes& shape, std::int64_t fan_in,
                                                                at::ScalarType type, at::Generator& generator);
// Returns the bias among `parameters`, which are weight and perhaps bias.
[[nodiscard]] std::optional<at::Tensor> bias_of(const std::vector<spatial::nn::Parameter>& parameters);

}  // namespace weft::experiment
