// The two forms of an experiment's file: neon's objects with tags, and weft's own plain mappings.
#pragma once

#include <span>

#include "weft/experiment/description.h"
#include "weft/experiment/fields.h"

namespace weft::experiment {

// `!obj:neon.experiments...` with everything below it. Mistakes go to `problems`.
[[nodiscard]] Experiment read_neon_form(const Value& root, Problems& problems);
// Mappings without tags: data, split, model.
[[nodiscard]] Experiment read_plain_form(const Value& root, Problems& problems);

// Parts that both forms share, by their keys.
// {type: uniform, low, high} and its kin.
[[nodiscard]] WeightInit read_weight_init(const Value& value, Problems& problems);
// {type: linear_monotone, initial_coef, ...}, {type: constant, coef}.
[[nodiscard]] MomentumSchedule read_momentum(const Value& value, Problems& problems);
// Two sizes from one or two; 2-dimensional fields are all there is here.
[[nodiscard]] Sizes pair_of(const std::optional<Sizes>& given, const Sizes& otherwise);
// neon's meaning: from 1 up a percentage, below a fraction.
[[nodiscard]] double fraction_of_sample(double sample_pct);

// The layers of a list; none and a problem where they are more than anybody means.
[[nodiscard]] std::span<const ValuePtr> layers_of(const Value& list, Problems& problems);

}  // namespace weft::experiment
