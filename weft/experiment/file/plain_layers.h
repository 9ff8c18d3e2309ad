// The layers of weft's own form: mappings of one key, such as `- conv: {maps: 20, kernel: 5}`, or words.
#pragma once

#include <vector>

#include "weft/experiment/file/description.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

[[nodiscard]] std::vector<LayerSpec> read_plain_layers(const Value& list, Problems& problems);
// Reads {type: sgd, rate, momentum, weight_decay, schedule}, or {type: adam, ...}.
[[nodiscard]] LearningRule read_optimizer(const Value& value, Problems& problems);
// Reads [error, top5, auc, {top_k: 3}]. The result omits the error itself, which is always measured.
[[nodiscard]] std::vector<Metric> read_metrics(const Value& list, Problems& problems);

}  // namespace weft::experiment
