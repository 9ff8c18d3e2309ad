#include "weft/experiment/training/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace weft::experiment {
namespace {

using Kind = LearningRule::Kind;

using FusedStep = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                       double, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                       const std::optional<at::Tensor>&);

bool is_adaptive(const LearningRule& rule) { return rule.kind == Kind::kAdam || rule.kind == Kind::kAdamW; }

bool has_momentum(const LearningRule& rule) { return rule.momentum.initial != 0 || rule.momentum.saturated != 0; }

Parameter state_of(const Parameter& parameter, const char* suffix, const at::Tensor& value) {
  Parameter state = parameter;
  state.name = parameter.name + suffix;
  state.value = value;
  return state;
}

// The count is equal on all ranks that hold a part of the parameter.
Parameter count_of(const Parameter& parameter, const at::Tensor& count) {
  Parameter state = state_of(parameter, ".updates", count);
  state.whole = {1};
  state.part = partition::Box::whole(state.whole);
  return state;
}

}  // namespace

Optimizer::Optimizer(const std::vector<Parameter*>& parameters) {
  for (Parameter* parameter : parameters) {
    if (!parameter->trained) continue;
    const LearningRule& rule = parameter->rule;
    const at::Tensor value = parameter->value.detach();
    Slot slot{parameter, {}, {}, {}};
    if (is_adaptive(rule) || has_momentum(rule)) slot.first = at::zeros_like(value);
    if (is_adaptive(rule)) slot.second = at::zeros_like(value);
    if (is_adaptive(rule)) slot.count = at::zeros({1}, value.options());
    slots_.push_back(std::move(slot));
  }
}

double rate_at(const LearningRule& rule, const UpdateTime& time) {
  return rule.rate * rule.schedule.at(static_cast<double>(time.epoch) + time.fraction, time.epochs);
}

void Optimizer::step(const UpdateTime& time) {
  const at::NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    if (!slot.parameter->value.grad().defined()) continue;
    const LearningRule& rule = slot.parameter->rule;
    const double rate = rate_at(rule, time);
    if (is_adaptive(rule)) {
      step_adaptive(slot, rate);
    } else {
      step_descent(slot, rate, rule.momentum.at(time.epoch));
    }
  }
}

// Reads and writes every number once. torch::optim's Adam reads and writes them in eight passes.
void Optimizer::step_adaptive(Slot& slot, double rate) {
  const LearningRule& rule = slot.parameter->rule;
  const auto step = rule.kind == Kind::kAdam ? static_cast<FusedStep*>(&at::_fused_adam_)
                                             : static_cast<FusedStep*>(&at::_fused_adamw_);
  slot.count.add_(1);
  step({slot.parameter->value.detach()}, {slot.parameter->value.grad().contiguous()}, {slot.first}, {slot.second}, {},
       {slot.count}, rate, rule.beta1, rule.beta2, rule.weight_decay, rule.epsilon, /*amsgrad=*/false,
       /*maximize=*/false, std::nullopt, std::nullopt);
}

// The velocity contains the learning rate, as in neon: a new rate applies to new gradients only.
void Optimizer::step_descent(Slot& slot, double rate, double momentum) {
  at::Tensor value = slot.parameter->value.detach();
  at::Tensor gradient = slot.parameter->value.grad();
  const double decay = slot.parameter->rule.weight_decay;
  if (decay != 0) gradient = gradient.add(value, decay);
  if (!slot.first.defined()) {
    value.sub_(gradient, rate);
    return;
  }
  slot.first.mul_(momentum).sub_(gradient, rate);
  value.add_(slot.first);
}

void Optimizer::clear_gradients() {
  for (Slot& slot : slots_) slot.parameter->value.mutable_grad() = at::Tensor();
}

std::vector<Parameter> Optimizer::state() const {
  std::vector<Parameter> result;
  for (const Slot& slot : slots_) {
    if (slot.first.defined()) result.push_back(state_of(*slot.parameter, ".momentum", slot.first));
    if (slot.second.defined()) result.push_back(state_of(*slot.parameter, ".square", slot.second));
    if (slot.count.defined()) result.push_back(count_of(*slot.parameter, slot.count));
  }
  return result;
}

}  // namespace weft::experiment
