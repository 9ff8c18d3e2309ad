// The classes that neon's files name by tags, and what they are here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/description.h"
#include "weft/experiment/problems.h"

namespace weft::experiment {

// The class that `value` is tagged with, if it is one of `known` ("neon.models.mlp.MLP", without "!obj:"); else a
// problem that names the nearest.
[[nodiscard]] std::optional<std::string> neon_class(const Value& value, const std::string& what,
                                                    const std::vector<std::string>& known, Problems& problems);

struct NeonLayerClass {
  LayerKind kind;
  bool split;
  bool has_bias;
};
[[nodiscard]] std::optional<NeonLayerClass> neon_layer_class(const Value& value, Problems& problems);
[[nodiscard]] std::optional<Activation> neon_activation(const Value& value, Problems& problems);
[[nodiscard]] std::optional<Cost> neon_cost(const Value& value, Problems& problems);
// "Convnet", "MLP", "GB", with Dist where it is split.
[[nodiscard]] std::optional<std::string> neon_model(const Value& value, Problems& problems);

}  // namespace weft::experiment
