#include "weft/experiment/forms.h"
#include "weft/experiment/plain_layers.h"

namespace weft::experiment {
namespace {

RateSchedule read_rate_schedule(const Value& value, Problems& problems) {
  Fields fields(value, "schedule", problems);
  RateSchedule schedule;
  const auto type = fields.choice("type", {"constant", "step", "exponential", "cosine"}).value_or("constant");
  schedule.gamma = fields.number("gamma", kNonNegative).value_or(type == "constant" ? 1 : 0.1);
  schedule.last = fields.number("last", kFraction).value_or(0);
  if (const Value* steps = fields.list("epochs")) {
    for (const ValuePtr& step : steps->items) {
      if (const auto number = as_integer(*step)) {
        schedule.steps.push_back(*number);
      } else {
        problems.add(step->place, "expected an epoch's number, got " + step->describe());
      }
    }
  }
  if (type == "step") schedule.kind = RateSchedule::Kind::kStep;
  if (type == "exponential") schedule.kind = RateSchedule::Kind::kExponential;
  if (type == "cosine") schedule.kind = RateSchedule::Kind::kCosine;
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
