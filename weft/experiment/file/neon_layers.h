// The layers of a neon file and their learning rules.
#pragma once

#include <optional>
#include <vector>

#include "weft/experiment/file/layer_spec.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

// Settings of the model that apply to layers without their own.
struct NeonDefaults {
  LearningRule rule{};
  bool has_learning_rule = false;  // the model has a `learning_rule`; otherwise `rule` comes from its other keys
  bool optional_biases = false;    // neon 0.6: layers have a bias only if weight_init contains bias_init
  double pretrain_rate = 0;
  double sparsity = 0;
  bool tied_weights = false;
};

[[nodiscard]] std::vector<LayerSpec> read_neon_layers(const Value& list, const NeonDefaults& model, Problems& problems);
// Reads `!obj:neon.models.learning_rule.…`. `rule` supplies the values that the object does not set.
[[nodiscard]] LearningRule read_neon_rule(const Value& value, LearningRule rule, std::optional<double>& pretrain_rate,
                                          Problems& problems);

}  // namespace weft::experiment
