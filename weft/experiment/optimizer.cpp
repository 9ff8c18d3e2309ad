#include "weft/experiment/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace weft::experiment {
namespace {

bool has_momentum(const LearningRule& rule) { return rule.momentum.initial != 0 || rule.momentum.saturated != 0; }

bool is_adaptive(const LearningRule& rule) { return rule.kind != LearningRule::Kind::kGradientDescent; }

Parameter kept(const Parameter& of, const char* what, const at::Tensor& value) {
  Parameter state = of;
  state.name = of.name + what;
  state.value = value;
  return state;
}

// The same on all ranks that hold a part of the parameter.
Parameter counted(const Parameter& of, const at::Tensor& count) {
  Parameter state = kept(of, ".updates", count);
  state.whole = {1};
  state.part = partition::Box::whole(state.whole);
  return state;
}

}  // namespace

Optimizer::Optimizer(std::vector<Parameter*> parameters) {
  for (Parameter* parameter : parameters) {
    if (!parameter->trained) continue;
    Slot slot{parameter, {}, {}, {}};
    const at::Tensor value = parameter->value.detach();
    if (is_adaptive(parameter->rule) || has_momentum(parameter->rule)) slot.first = at::zeros_like(value);
    if (is_adaptive(parameter->rule)) {
      slot.second = at::zeros_like(value);
      slot.count = at::zeros({1}, value.options());
    }
    slots_.push_back(std::move(slot));
  }
}

void Optimizer::step(const UpdateTime& time) {
  const at::NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    if (!slot.parameter->value.grad().defined()) continue;
    const LearningRule& rule = slot.parameter->rule;
    const double rate = rule.rate * rule.schedule.at(static_cast<double>(time.epoch) + time.fraction, time.epochs);
    if (is_adaptive(rule)) {
      adapt(slot, rule, rate);
    } else {
      descend(slot, rule, rate, rule.momentum.at(time.epoch));
    }
  }
}

// neon's: the rate belongs to the velocity, so a change of rate shows at once only in the new gradient's part.
void Optimizer::descend(Slot& slot, const LearningRule& rule, double rate, double momentum) const {
  at::Tensor value = slot.parameter->value.detach();
  at::Tensor gradient = slot.parameter->value.grad();
  if (rule.weight_decay != 0) gradient = gradient.add(value, rule.weight_decay);
  if (!slot.first.defined()) {
    value.sub_(gradient, rate);
    return;
  }
  slot.first.mul_(momentum).sub_(gradient, rate);
  value.add_(slot.first);
}

void Optimizer::adapt(Slot& slot, const LearningRule& rule, double rate) const {
  at::Tensor value = slot.parameter->value.detach();
  at::Tensor gradient = slot.parameter->value.grad();
  if (rule.weight_decay != 0 && rule.kind == LearningRule::Kind::kAdamW) value.mul_(1 - rate * rule.weight_decay);
  if (rule.weight_decay != 0 && rule.kind == LearningRule::Kind::kAdam)
    gradient = gradient.add(value, rule.weight_decay);
  slot.first.mul_(rule.beta1).add_(gradient, 1 - rule.beta1);
  slot.second.mul_(rule.beta2).addcmul_(gradient, gradient, 1 - rule.beta2);
  const auto updates = slot.count.add_(1).item<double>();
  const double bias1 = 1 - std::pow(rule.beta1, updates);
  const double bias2 = 1 - std::pow(rule.beta2, updates);
  value.addcdiv_(slot.first, slot.second.sqrt().div_(std::sqrt(bias2)).add_(rule.epsilon), -rate / bias1);
}

void Optimizer::clear_gradients() {
  for (Slot& slot : slots_) slot.parameter->value.mutable_grad() = at::Tensor();
}

std::vector<Parameter> Optimizer::state() const {
  std::vector<Parameter> result;
  for (const Slot& slot : slots_) {
    if (slot.first.defined()) result.push_back(kept(*slot.parameter, ".momentum", slot.first));
    if (slot.second.defined()) result.push_back(kept(*slot.parameter, ".square", slot.second));
    if (slot.count.defined()) result.push_back(counted(*slot.parameter, slot.count));
  }
  return result;
}

}  // namespace weft::experiment
