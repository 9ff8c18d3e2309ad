#include "weft/experiment/file/forms.h"

namespace weft::experiment {

WeightInit read_weight_init(const Value& value, Problems& problems) {
  Fields fields(value, "weight_init", problems);
  fields.require("type");
  const auto type =
      fields.choice("type", {"uniform", "normal", "gaussian", "node_normalized", "fan_in"}).value_or("fan_in");
  WeightInit init;
  init.low = fields.number("low").value_or(init.low);
  init.high = fields.number("high").value_or(init.high);
  init.loc = fields.number("loc").value_or(init.loc);
  init.scale = fields.number("scale", kNonNegative).value_or(init.scale);
  init.bias = fields.number("bias_init").value_or(init.bias);
  fields.accept({"dtype"});
  if (type == "uniform") init.kind = WeightInit::Kind::kUniform;
  if (type == "normal" || type == "gaussian") init.kind = WeightInit::Kind::kNormal;
  if (type == "node_normalized") init.kind = WeightInit::Kind::kNodeNormalized;
  if (init.kind == WeightInit::Kind::kUniform && init.high < init.low) {
    problems.add(fields.place_of("high"), "'high' of weight_init must be at least 'low'");
  }
  return init;
}

MomentumSchedule read_momentum(const Value& value, Problems& problems) {
  Fields fields(value, "momentum", problems);
  const auto type = fields.choice("type", {"linear_monotone", "constant"}).value_or("constant");
  MomentumSchedule schedule;
  const double constant = fields.number("coef", kFraction).value_or(0);
  schedule.initial = fields.number("initial_coef", kFraction).value_or(constant);
  schedule.saturated = fields.number("saturated_coef", kFraction).value_or(schedule.initial);
  schedule.start = fields.integer("start_epoch", kCount).value_or(0);
  schedule.saturate = fields.integer("saturate_epoch", kCount).value_or(schedule.start);
  if (type == "constant") schedule.saturated = schedule.initial;
  if (schedule.saturate < schedule.start) {
    problems.add(fields.place_of("saturate_epoch"), "'saturate_epoch' must be at least 'start_epoch'");
  }
  return schedule;
}

std::span<const ValuePtr> layers_of(const Value& list, Problems& problems) {
  constexpr std::size_t kMost = 10'000;
  if (list.items.size() <= kMost) return list.items;
  problems.add(list.place, "expected at most " + std::to_string(kMost) + " layers, got " +
                               std::to_string(list.items.size()) + "; for deep networks use residual_stack");
  return {};
}

Sizes pair_of(const std::optional<Sizes>& given, const Sizes& otherwise) {
  if (!given) return otherwise;
  return given->size() == 1 ? Sizes{given->front(), given->front()} : *given;
}

double fraction_of_sample(double sample_pct) { return sample_pct >= 1 ? sample_pct / 100 : sample_pct; }

}  // namespace weft::experiment
