// Tests costs against manual sums.
#include "weft/experiment/training/cost.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "weft/experiment/file/description.h"

namespace weft::experiment {
namespace {

const at::Tensor kLabels = at::tensor({1L, 0L});

TEST(CostTest, MatchesManualSums) {
  const at::Tensor outputs = at::tensor({0.25, 0.5, 0.75, 0.125}).view({2, 2});
  const CostValue binary = cost_of(Cost::kBinaryCrossEntropy, outputs, kLabels, 2);
  const double sum = -(std::log(0.75) + std::log(0.5) + std::log(0.75) + std::log(0.875));
  EXPECT_NEAR(binary.objective.item<double>(), sum / 2, 1e-14);
  EXPECT_NEAR(binary.reported, sum / 4, 1e-14);
  const CostValue squared = cost_of(Cost::kSumSquared, outputs, kLabels, 2);
  EXPECT_NEAR(squared.reported, (0.0625 + 0.25 + 0.0625 + 0.015625) / 4, 1e-14);
}

// The logistic function and the cost, computed separately with neon's formula, and together.
TEST(CostTest, LogitsGiveTheSameCostAndGradient) {
  at::Tensor x = at::tensor({0.5, -3.0, 2.0, 0.25}).view({2, 2}).requires_grad_();
  const CostValue separate = cost_of(Cost::kBinaryCrossEntropy, x.sigmoid(), kLabels, 3);
  separate.objective.backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  const CostValue fused = cost_of(Cost::kLogisticCrossEntropy, x, kLabels, 3);
  fused.objective.backward();
  EXPECT_NEAR(fused.reported, separate.reported, 1e-14);
  EXPECT_NEAR(fused.objective.item<double>(), separate.objective.item<double>(), 1e-14);
  EXPECT_TRUE(at::allclose(x.grad(), gradient, 1e-12, 1e-15));
  EXPECT_TRUE(at::allclose(gradient, x.detach().sigmoid().sub(at::tensor({0., 1., 1., 0.}).view({2, 2})).div(3)));
}

// An output that is certain of the wrong class must learn. neon's formula divides by a clipped y (1 - y).
TEST(CostTest, SaturatedLogitsHaveAGradient) {
  at::Tensor x = at::full({2, 2}, 40.0f).requires_grad_();
  cost_of(Cost::kLogisticCrossEntropy, x, kLabels, 2).objective.backward();
  EXPECT_TRUE(at::allclose(x.grad(), at::tensor({0.5f, 0.f, 0.f, 0.5f}).view({2, 2})));
  x.mutable_grad() = at::Tensor();
  cost_of(Cost::kBinaryCrossEntropy, x.sigmoid(), kLabels, 2).objective.backward();
  EXPECT_EQ(x.grad().abs().max().item<double>(), 0);
}

// A NaN must not end a diverged run.
TEST(CostTest, PropagatesNaN) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const Cost cost :
       {Cost::kBinaryCrossEntropy, Cost::kLogisticCrossEntropy, Cost::kSumSquared, Cost::kSoftmaxCrossEntropy}) {
    const at::Tensor outputs = at::tensor({0.5, none, 0.5, 0.5}).view({2, 2}).requires_grad_();
    const CostValue value = cost_of(cost, outputs, kLabels, 2);
    EXPECT_TRUE(std::isnan(value.reported));
    value.objective.backward();
    EXPECT_TRUE(outputs.grad().isnan().any().item<bool>());
  }
}

}  // namespace
}  // namespace weft::experiment
