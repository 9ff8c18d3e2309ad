// The layers of a neon file and their learning rules.
#pragma once

#include <optional>
#include <vector>

#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

[[nodiscard]] std::vector<LayerSpec> read_neon_layers(const Value& list, const NeonDefaults& model, Problems& problems);
// Reads `!obj:neon.models.learning_rule.…`. `rule` supplies the values that the object does not set.
[[nodiscard]] LearningRule read_neon_rule(const Value& value, LearningRule rule, std::optional<double>& pretrain_rate,
                                          Problems& problems);

}  // namespace weft::experiment
