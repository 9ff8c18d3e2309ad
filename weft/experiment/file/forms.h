// Readers for the two file formats: neon's tagged objects and weft's plain mappings.
#pragma once

#include <span>

#include "weft/experiment/file/description.h"
#include "weft/experiment/file/fields.h"

namespace weft::experiment {

// Reads `!obj:neon.experiments...` and everything below it. Adds mistakes to `problems`.
[[nodiscard]] Experiment read_neon_form(const Value& root, Problems& problems);
// Reads mappings without tags: data, split, model.
[[nodiscard]] Experiment read_plain_form(const Value& root, Problems& problems);

// These functions read parts that both formats share.

// Reads {type: uniform, low, high} and the other kinds.
[[nodiscard]] WeightInit read_weight_init(const Value& value, Problems& problems);
// Reads {type: linear_monotone, initial_coef, ...} or {type: constant, coef}.
[[nodiscard]] MomentumSchedule read_momentum(const Value& value, Problems& problems);
// Expands one size to two, for 2-dimensional fields. Returns `otherwise` if none is given.
[[nodiscard]] Sizes pair_of(const std::optional<Sizes>& given, const Sizes& otherwise);
// Converts neon's sample_pct: values of at least 1 are percentages, smaller ones are fractions.
[[nodiscard]] double fraction_of_sample(double sample_pct);

// Returns the items of a list of layers. Adds a problem and returns none if there are more than 10,000.
[[nodiscard]] std::span<const ValuePtr> layers_of(const Value& list, Problems& problems);

}  // namespace weft::experiment
