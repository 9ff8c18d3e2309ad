// input_products() against torch's linear(), and the reuse of its memory.
#include "weft/time_parallel/input_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "weft/memory/block_pool.h"

namespace weft::time_parallel {
namespace {

using at::Tensor;

constexpr std::int64_t kSteps = 6, kRows = 3, kFeatures = 5, kOutputs = 7;

// Inputs of [steps, batch, features] in all memory orders.
std::vector<Tensor> inputs() {
  const auto type = at::kDouble;
  return {at::randn({kSteps, kRows, kFeatures}, type), at::randn({kRows, kSteps, kFeatures}, type).transpose(0, 1),
          at::randn({kSteps, 2 * kRows, kFeatures}, type).narrow(1, 1, kRows),
          at::randn({kSteps, kFeatures, kRows}, type).transpose(1, 2), at::randn({0, kRows, kFeatures}, type)};
}

TEST(InputProducts, EqualTorchsLinearWithFirstAndSecondDerivatives) {
  for (const bool biased : {false, true}) {
    for (const Tensor& given : inputs()) {
      const Tensor x = given.detach().requires_grad_();
      const Tensor weight = at::randn({kOutputs, kFeatures}, at::kDouble).requires_grad_();
      const Tensor bias = biased ? at::randn({kOutputs}, at::kDouble).requires_grad_() : Tensor();
      const auto optional = biased ? std::optional(bias) : std::nullopt;
      const Tensor y = input_products(x, weight, optional);
      const Tensor expected = at::linear(x, weight, optional);
      EXPECT_TRUE(at::allclose(y, expected));
      // The memory order of the input is kept.
      if (x.transpose(0, 1).is_contiguous() && !x.is_contiguous()) EXPECT_TRUE(y.transpose(0, 1).is_contiguous());

      std::vector<Tensor> leaves{x, weight};
      if (biased) leaves.push_back(bias);
      const auto second = [&](const Tensor& output) {
        const auto first = torch::autograd::grad({output.pow(3).sum()}, leaves, {}, true, /*create_graph=*/true);
        Tensor sum = first[0].pow(2).sum() + first[1].pow(2).sum();
        auto found = torch::autograd::grad({sum}, {x, weight}, {}, /*retain_graph=*/true);
        found.insert(found.end(), first.begin(), first.end());
        return found;
      };
      const auto grads = second(y), others = second(expected);
      for (std::size_t k = 0; k < grads.size(); ++k) EXPECT_TRUE(at::allclose(grads[k], others[k])) << k;
      // Without a graph of the gradients.
      const Tensor seed = at::randn(y.sizes(), at::kDouble);
      const auto mine = torch::autograd::grad({y}, leaves, {seed}, true);
      const auto theirs = torch::autograd::grad({expected}, leaves, {seed}, true);
      for (std::size_t k = 0; k < mine.size(); ++k) EXPECT_TRUE(at::allclose(mine[k], theirs[k])) << k;
    }
  }
}

TEST(InputProducts, ReuseThePoolsMemory) {
  const Tensor x = at::randn({64, 4, 32}).requires_grad_();
  const Tensor weight = at::randn({96, 32}).requires_grad_();
  const auto pass = [&] {
    const Tensor y = input_products(x, weight, std::nullopt);
    static_cast<void>(torch::autograd::grad({y}, {x, weight}, {y.detach()}));
    return y.const_data_ptr();
  };
  const void* first = pass();
  const auto before = memory::BlockPool::of_process().statistics();
  EXPECT_EQ(pass(), first);
  const auto after = memory::BlockPool::of_process().statistics();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.hits, before.hits + 2);  // the products and the gradient of x
  EXPECT_EQ(after.live_bytes, before.live_bytes);
}

TEST(InputProducts, RejectShapesThatDoNotFit) {
  const Tensor x = at::randn({2, 3, 4});
  EXPECT_THROW(static_cast<void>(input_products(x[0], at::randn({5, 4}), std::nullopt)), c10::ValueError);
  EXPECT_THROW(static_cast<void>(input_products(x, at::randn({5, 3}), std::nullopt)), c10::ValueError);
  EXPECT_THROW(static_cast<void>(input_products(x, at::randn({5, 4}), at::randn({4}))), c10::ValueError);
  EXPECT_THROW(static_cast<void>(input_products(x, at::randn({5, 4}, at::kDouble), std::nullopt)), c10::ValueError);
}

}  // namespace
}  // namespace weft::time_parallel
