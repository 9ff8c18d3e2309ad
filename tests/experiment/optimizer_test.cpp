// Updates step by step beside torch's own optimisers.
#include "weft/experiment/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

namespace weft::experiment {
namespace {

using at::Tensor;

constexpr int kSteps = 25;

Tensor gradient_at(int step, const Tensor& like) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + step));
  Tensor gradient = at::randn(like.sizes(), generator, like.options());
  if (step % 7 == 3) gradient.zero_();  // a moment without any
  return gradient.mul_(step % 5 == 0 ? 1e-9 : 1.0);
}

// `theirs` over `reference` and ours over a copy get the same gradients; after every step the values are the same.
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
  // Or equality would only say that nothing moved.
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

// Its means begin with its first gradient, and so does their correction: torch counts for each parameter.
TEST(OptimizerTest, AParameterWhoseGradientsBeginLater) {
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
void expect_torchs(LearningRule::Kind kind) {
  for (const double decay : {0.0, 0.1}) {
    const LearningRule rule = adaptive(kind, decay);
    const auto options = torch_options<Options>(rule);
    expect_same_steps<Optimizer>(rule, options, at::kDouble, 1e-14);
    expect_same_steps<Optimizer>(rule, options, at::kFloat, 2e-6);
  }
}

TEST(OptimizerTest, AdamIsTorchs) {
  expect_torchs<torch::optim::Adam, torch::optim::AdamOptions>(LearningRule::Kind::kAdam);
}

TEST(OptimizerTest, AdamWIsTorchs) {
  expect_torchs<torch::optim::AdamW, torch::optim::AdamWOptions>(LearningRule::Kind::kAdamW);
}

// With a rate that stays, neon's momentum is torch's: the rate only moves from one factor to the other.
TEST(OptimizerTest, DescentIsTorchs) {
  for (const double momentum : {0.0, 0.7}) {
    LearningRule rule;
    rule.rate = 0.03;
    rule.weight_decay = 0.05;
    rule.momentum = {.initial = momentum, .saturated = momentum};
    const auto options = torch::optim::SGDOptions(0.03).momentum(momentum).weight_decay(0.05);
    expect_same_steps<torch::optim::SGD>(rule, options, at::kDouble, 1e-14);
  }
}

TEST(OptimizerTest, WithoutAGradientAParameterStays) {
  Parameter parameter = whole_parameter("w", at::ones({2}, at::kDouble), adaptive(LearningRule::Kind::kAdamW, 0.5));
  Optimizer ours({&parameter});
  ours.step({});
  EXPECT_TRUE(at::equal(parameter.value.detach(), at::ones({2}, at::kDouble)));
}

TEST(OptimizerTest, NaNTravels) {
  Parameter parameter = whole_parameter("w", at::ones({2}, at::kDouble), adaptive(LearningRule::Kind::kAdam, 0));
  Optimizer ours({&parameter});
  parameter.value.mutable_grad() = at::full({2}, std::nan(""), at::kDouble);
  ours.step({});
  EXPECT_TRUE(parameter.value.detach().isnan().all().item<bool>());
}

}  // namespace
}  // namespace weft::experiment
