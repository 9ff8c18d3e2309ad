// The first values of weights, drawn whole: what a rank cuts from them does not depend on how many ranks there are.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "weft/experiment/layer_spec.h"

namespace weft::experiment {

// One generator for each layer, so that a layer's values do not depend on those before it.
[[nodiscard]] at::Generator layer_generator(std::uint64_t seed, std::size_t layer);

// `fan_in` is how many inputs one output sums; for kNodeNormalized and kFanIn.
[[nodiscard]] at::Tensor initial_weights(const WeightInit& init, const Sizes& shape, std::int64_t fan_in,
                                         at::ScalarType type, at::Generator& generator);
// All `init.bias`; for kFanIn drawn as torch draws them.
[[nodiscard]] at::Tensor initial_biases(const WeightInit& init, std::int64_t count, std::int64_t fan_in,
                                        at::ScalarType type, at::Generator& generator);

}  // namespace weft::experiment
