// The layers of a neon file, and the rules by which they learn.
#pragma once

#include <optional>
#include <vector>

#include "weft/experiment/layer_spec.h"
#include "weft/experiment/problems.h"

namespace weft::experiment {

// `rule` and `pretrain_rate` are the model's, for layers that say nothing else.
[[nodiscard]] std::vector<LayerSpec> read_neon_layers(const Value& list, const LearningRule& rule, double pretrain_rate,
                                                      Problems& problems);
// `!obj:neon.models.learning_rule.…`, from `rule` where it says nothing else.
[[nodiscard]] LearningRule read_neon_rule(const Value& value, LearningRule rule, std::optional<double>& pretrain_rate,
                                          Problems& problems);

}  // namespace weft::experiment
