// Compares updates with torch's optimizers, step by step.
#include "weft/experiment/training/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "weft/experiment/file/layer_spec.h"

namespace weft::experiment {
namespace {

using at::Tensor;

constexpr int kSteps = 25;

Tensor gradient_at(int step, const Tensor& like) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + step));
  Tensor gradient = at::randn(like.sizes(), generator, like.options());
  if (step % 7 == 3) gradient.zero_();  // sometimes zero
  return gradient.mul_(step % 5 == 0 ? 1e-9 : 1.0);
}

// Gives the same gradients to torch's optimizer and to ours, and compares the values after every step.
template <typename TheirOptimizer, typename TheirOptions>
void expect_same_steps(const LearningRule& rule, const TheirOptions& options, at::ScalarType type, double tolerance) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  const Tensor first = at::randn({3, 4}, generator, at::TensorOptions().dtype(type));
  Tensor reference = first.clone().set_requires_grad(true);
  TheirOptimizer theirs(std::vector<Tensor>{reference}, options);
  Parameter parameter = whole_parameter("w", first.clone(), rule);
  Optimizer ours({&parameter});
  for (int step = 0; step < kSteps; ++step) {
    const Tensor gradient = gradient_at(step, first);
    reference.mutable_grad() = gradient.clone();
    parameter.value.mutable_grad() = gradient.clone();
    theirs.step();
    ours.step({});
    const double far = parameter.value.detach().sub(reference.detach()).abs().max().template item<double>();
    EXPECT_LE(far, tolerance) << "step " << step;
  }
  // The values must have moved.
  EXPECT_GT(parameter.value.detach().sub(first).abs().max().template item<double>(), 0.05);
}

LearningRule adaptive(LearningRule::Kind kind, double decay) {
  LearningRule rule;
  rule.kind = kind;
  rule.rate = 0.02;
  rule.beta1 = 0.8;
  rule.beta2 = 0.97;
  rule.epsilon = 1e-6;
  rule.weight_decay = decay;
  return rule;
}

// torch counts updates per parameter, starting with its first gradient.
TEST(OptimizerTest, CountsUpdatesPerParameter) {
  const LearningRule rule = adaptive(LearningRule::Kind::kAdam, 0);
  const Tensor first = at::ones({3, 4}, at::kDouble);
  Tensor early = first.clone().set_requires_grad(true);
  Tensor late = first.clone().set_requires_grad(true);
  auto options = torch::optim::AdamOptions(rule.rate).betas({rule.beta1, rule.beta2}).eps(rule.epsilon);
  torch::optim::Adam theirs(std::vector<Tensor>{early, late}, options);
  Parameter our_early = whole_parameter("early", first.clone(), rule);
  Parameter our_late = whole_parameter("late", first.clone(), rule);
  Optimizer ours({&our_early, &our_late});
  for (int step = 0; step < kSteps; ++step) {
    const Tensor gradient = gradient_at(step, first);
    for (Tensor* value : {&early, &our_early.value}) value->mutable_grad() = gradient.clone();
    for (Tensor* value : {&late, &our_late.value}) value->mutable_grad() = step < 9 ? Tensor() : gradient.clone();
    theirs.step();
    ours.step({});
    EXPECT_LE(our_early.value.detach().sub(early.detach()).abs().max().item<double>(), 1e-14) << "step " << step;
    EXPECT_LE(our_late.value.detach().sub(late.detach()).abs().max().item<double>(), 1e-14) << "step " << step;
  }
}

template <typename Options>
Options torch_options(const LearningRule& rule) {
  return Options(rule.rate).betas({rule.beta1, rule.beta2}).eps(rule.epsilon).weight_decay(rule.weight_decay);
}

template <typename Optimizer, typename Options>
void expect_same_as_torch(LearningRule::Kind kind) {
  for (const double decay : {0.0, 0.1}) {
    const LearningRule rule = adaptive(kind, decay);
    const auto options = torch_options<Options>(rule);
    expect_same_steps<Optimizer>(rule, options, at::kDouble, 1e-14);
    expect_same_steps<Optimizer>(rule, options, at::kFloat, 2e-6);
  }
}

TEST(OptimizerTest, AdamMatchesTorch) {
  expect_same_as_torch<torch::optim::Adam, torch::optim::AdamOptions>(LearningRule::Kind::kAdam);
}

TEST(OptimizerTest, AdamWMatchesTorch) {
  expect_same_as_torch<torch::optim::AdamW, torch::optim::AdamWOptions>(LearningRule::Kind::kAdamW);
}

// With a constant learning rate, neon's momentum equals torch's.
TEST(OptimizerTest, DescentMatchesTorch) {
  for (const double momentum : {0.0, 0.7}) {
    LearningRule rule;
    rule.rate = 0.03;
    rule.weight_decay = 0.05;
    rule.momentum = {.initial = momentum, .saturated = momentum};
    const auto options = torch::optim::SGDOptions(0.03).momentum(momentum).weight_decay(0.05);
    expect_same_steps<torch::optim::SGD>(rule, options, at::kDouble, 1e-14);
  }
}

// Restores the state of one optimizer into a new one, as a checkpoint does, and compares all later steps bit by bit.
TEST(OptimizerTest, ContinuesBitEqualFromARestoredState) {
  LearningRule momentum;
  momentum.momentum = {.initial = 0.5, .saturated = 0.9, .start = 0, .saturate = 4};
  for (const LearningRule& rule :
       {adaptive(LearningRule::Kind::kAdam, 0.1), adaptive(LearningRule::Kind::kAdamW, 0.1), momentum}) {
    Parameter original = whole_parameter("w", at::ones({3, 4}, at::kDouble), rule);
    Optimizer first({&original});
    const auto step = [&](Parameter& parameter, Optimizer& optimizer, int i) {
      parameter.value.mutable_grad() = gradient_at(i, parameter.value.detach());
      optimizer.step({.epoch = i});
    };
    for (int i = 0; i < 9; ++i) step(original, first, i);
    Parameter copy = whole_parameter("w", original.value.detach().clone(), rule);
    Optimizer second({&copy});
    const auto saved = first.state();
    const auto restored = second.state();
    ASSERT_EQ(saved.size(), restored.size());
    ASSERT_FALSE(saved.empty());
    for (std::size_t i = 0; i < saved.size(); ++i) {
      EXPECT_EQ(saved[i].name, restored[i].name);
      restored[i].value.detach().copy_(saved[i].value);
    }
    for (int i = 9; i < kSteps; ++i) {
      step(original, first, i);
      step(copy, second, i);
      ASSERT_TRUE(at::equal(original.value.detach(), copy.value.detach())) << "step " << i;
    }
  }
}

TEST(OptimizerTest, StateHasStableNamesAndShapes) {
  Parameter adam = whole_parameter("a", at::ones({3, 4}), adaptive(LearningRule::Kind::kAdam, 0));
  Parameter plain = whole_parameter("b", at::ones({2}), {});
  LearningRule momentum;
  momentum.momentum = {.initial = 0.5, .saturated = 0.5};
  Parameter moving = whole_parameter("c", at::ones({5}), momentum);
  std::vector<std::pair<std::string, Sizes>> found;
  for (const Parameter& state : Optimizer({&adam, &plain, &moving}).state()) {
    found.emplace_back(state.name, state.whole);
    EXPECT_EQ(state.value.sizes().vec(), state.whole);
  }
  const std::vector<std::pair<std::string, Sizes>> expected{
      {"a.momentum", {3, 4}}, {"a.square", {3, 4}}, {"a.updates", {1}}, {"c.momentum", {5}}};
  EXPECT_EQ(found, expected);
}

// 0.01 is torch's default weight decay for AdamW; parameter groups would confuse it with an unset option.
TEST(OptimizerTest, KeepsEachParametersOwnRule) {
  const LearningRule none = adaptive(LearningRule::Kind::kAdamW, 0);
  const LearningRule decaying = adaptive(LearningRule::Kind::kAdamW, 0.01);
  Parameter a = whole_parameter("a", at::ones({1}, at::kDouble), none);
  Parameter b = whole_parameter("b", at::ones({1}, at::kDouble), decaying);
  Optimizer optimizer({&a, &b});
  for (Parameter* parameter : {&a, &b}) parameter->value.mutable_grad() = at::zeros({1}, at::kDouble);
  optimizer.step({});
  EXPECT_EQ(a.value.item<double>(), 1);
  EXPECT_DOUBLE_EQ(b.value.item<double>(), 1 - 0.02 * 0.01);
}

TEST(OptimizerTest, SkipsParametersWithoutAGradient) {
  Parameter parameter = whole_parameter("w", at::ones({2}, at::kDouble), adaptive(LearningRule::Kind::kAdamW, 0.5));
  Optimizer ours({&parameter});
  ours.step({});
  EXPECT_TRUE(at::equal(parameter.value.detach(), at::ones({2}, at::kDouble)));
}

TEST(OptimizerTest, PropagatesNaN) {
  Parameter parameter = whole_parameter("w", at::ones({2}, at::kDouble), adaptive(LearningRule::Kind::kAdam, 0));
  Optimizer ours({&parameter});
  parameter.value.mutable_grad() = at::full({2}, std::nan(""), at::kDouble);
  ours.step({});
  EXPECT_TRUE(parameter.value.detach().isnan().all().item<bool>());
}

}  // namespace
}  // namespace weft::experiment
