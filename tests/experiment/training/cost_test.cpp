// Tests costs against manual sums.
#include "weft/experiment/training/cost.h"

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

// torch's binary cross entropy throws for NaN, which would end a diverged run.
TEST(CostTest, PropagatesNaN) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const Cost cost : {Cost::kBinaryCrossEntropy, Cost::kSumSquared, Cost::kSoftmaxCrossEntropy}) {
    const at::Tensor outputs = at::tensor({0.5, none, 0.5, 0.5}).view({2, 2}).requires_grad_();
    const CostValue value = cost_of(cost, outputs, kLabels, 2);
    EXPECT_TRUE(std::isnan(value.reported));
    value.objective.backward();
    EXPECT_TRUE(outputs.grad().isnan().any().item<bool>());
  }
}

}  // namespace
}  // namespace weft::experiment
