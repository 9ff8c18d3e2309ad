#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/plain_layers.h"

namespace weft::experiment {
namespace {

constexpr double kGamma = 0.1;

std::vector<std::int64_t> read_steps(Fields& fields) {
  fields.require("epochs");
  std::vector<std::int64_t> epochs;
  const Value* const list = fields.list("epochs");
  if (list == nullptr) return epochs;
  if (list->items.empty()) fields.problems().add(list->place, "'epochs' of schedule must list at least one epoch");
  for (const ValuePtr& step : list->items) {
    if (const auto number = as_integer(*step)) {
      epochs.push_back(*number);
    } else {
      fields.problems().add(step->place, "expected an epoch number, got " + step->describe());
    }
  }
  return epochs;
}

// Keys of other types are errors, since they would have no effect.
RateSchedule read_rate_schedule(const Value& value, Problems& problems) {
  Fields fields(value, "schedule", problems);
  fields.require("type");
  const auto type = fields.choice("type", {"constant", "step", "exponential", "cosine"});
  RateSchedule schedule;
  if (!type) fields.accept({"epochs", "gamma", "last"});  // the type is unknown, so its keys are not reported as well
  if (type == "step") {
    schedule.kind = RateSchedule::Kind::kStep;
    schedule.steps = read_steps(fields);
    schedule.gamma = fields.number("gamma", kNonNegative).value_or(kGamma);
  } else if (type == "exponential") {
    schedule.kind = RateSchedule::Kind::kExponential;
    schedule.gamma = fields.number("gamma", kNonNegative).value_or(kGamma);
  } else if (type == "cosine") {
    schedule.kind = RateSchedule::Kind::kCosine;
    schedule.last = fields.number("last", kFraction).value_or(0);
  }
  return schedule;
}

void read_momentum_key(Fields& fields, LearningRule& rule) {
  const Value* const momentum = fields.any("momentum");
  if (momentum == nullptr) return;
  if (momentum->kind == Value::Kind::kMapping) {
    rule.momentum = read_momentum(*momentum, fields.problems());
  } else {
    const double constant = fields.number("momentum", kFraction).value_or(0);
    rule.momentum = {.initial = constant, .saturated = constant};
  }
}

}  // namespace

LearningRule read_optimizer(const Value& value, Problems& problems) {
  Fields fields(value, "optimizer", problems);
  LearningRule rule;
  const auto type = fields.choice("type", {"sgd", "adam", "adamw"}).value_or("sgd");
  fields.require("rate");
  rule.rate = fields.number("rate", kNonNegative).value_or(rule.rate);
  rule.weight_decay = fields.number("weight_decay", kNonNegative).value_or(0);
  if (const Value* schedule = fields.mapping("schedule")) rule.schedule = read_rate_schedule(*schedule, problems);
  if (type == "sgd") {
    read_momentum_key(fields, rule);
    return rule;
  }
  rule.kind = type == "adam" ? LearningRule::Kind::kAdam : LearningRule::Kind::kAdamW;
  rule.beta1 = fields.number("beta1", kDecay).value_or(rule.beta1);
  rule.beta2 = fields.number("beta2", kDecay).value_or(rule.beta2);
  rule.epsilon = fields.number("epsilon", kNonNegative).value_or(rule.epsilon);
  return rule;
}

}  // namespace weft::experiment
