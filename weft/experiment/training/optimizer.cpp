#include "weft/experiment/training/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace weft::experiment {
namespace {

using Kind = LearningRule::Kind;

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

// Each parameter has its own torch optimizer: options of a parameter group that equal torch's defaults would be
// replaced by those of the optimizer.
template <class Torch, class Options, class State>
void Optimizer::add_adaptive(Slot& slot) {
  const LearningRule& rule = slot.parameter->rule;
  const at::Tensor& value = slot.parameter->value;
  slot.first = at::zeros_like(value.detach());
  slot.second = at::zeros_like(value.detach());
  slot.count = at::zeros({1}, value.detach().options());
  slot.optimizer = std::make_unique<Torch>(
      std::vector<at::Tensor>{value},
      Options(rule.rate).betas({rule.beta1, rule.beta2}).eps(rule.epsilon).weight_decay(rule.weight_decay));
  auto state = std::make_unique<State>();
  state->exp_avg(slot.first);
  state->exp_avg_sq(slot.second);
  slot.optimizer->state()[value.unsafeGetTensorImpl()] = std::move(state);
}

// torch counts updates in an integer; the checkpoint needs a tensor.
template <class State>
void Optimizer::step_adaptive(Slot& slot) {
  auto& state = static_cast<State&>(*slot.optimizer->state().at(slot.parameter->value.unsafeGetTensorImpl()));
  state.step(slot.count.item<std::int64_t>());
  slot.optimizer->step();
  slot.count.fill_(state.step());
}

Optimizer::Optimizer(const std::vector<Parameter*>& parameters) {
  for (Parameter* parameter : parameters) {
    if (!parameter->trained) continue;
    const LearningRule& rule = parameter->rule;
    Slot slot{parameter, {}, {}, {}, {}};
    if (rule.kind == Kind::kAdam) {
      add_adaptive<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState>(slot);
    } else if (rule.kind == Kind::kAdamW) {
      add_adaptive<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState>(slot);
    } else if (has_momentum(rule)) {
      slot.first = at::zeros_like(parameter->value.detach());
    } else {
      slot.optimizer =
          std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{parameter->value},
                                              torch::optim::SGDOptions(rule.rate).weight_decay(rule.weight_decay));
    }
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
    if (!slot.optimizer) {
      step_momentum(slot, rate, rule.momentum.at(time.epoch));
      continue;
    }
    slot.optimizer->param_groups().front().options().set_lr(rate);
    if (rule.kind == Kind::kAdam) {
      step_adaptive<torch::optim::AdamParamState>(slot);
    } else if (rule.kind == Kind::kAdamW) {
      step_adaptive<torch::optim::AdamWParamState>(slot);
    } else {
      slot.optimizer->step();
    }
  }
}

// The velocity contains the learning rate, as in neon: a new rate applies to new gradients only.
void Optimizer::step_momentum(Slot& slot, double rate, double momentum) {
  at::Tensor value = slot.parameter->value.detach();
  at::Tensor gradient = slot.parameter->value.grad();
  const double decay = slot.parameter->rule.weight_decay;
  if (decay != 0) gradient = gradient.add(value, decay);
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
