#include "weft/spatial/convolution/kernel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

namespace weft::spatial {
namespace {

using at::Tensor;

bool close(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12); }

std::tuple<Tensor, Tensor, Tensor> torch_gradients(const Tensor& g, const Tensor& x, const Kernel& kernel) {
  const std::vector<std::int64_t> none{0, 0};
  const std::vector<std::int64_t> bias{kernel.weight.size(0)};
  return at::convolution_backward(g, x, kernel.weight, at::OptionalIntArrayRef(bias), kernel.stride, kernel.padding,
                                  kernel.dilation, false, none, kernel.groups, {true, true, true});
}

// 3 MiB per sample: the kernel convolves two at a time, and one remains.
class LargeBatch : public testing::Test {
 protected:
  at::NoGradGuard no_grad_;
  Tensor x_ = at::randn({5, 6, 256, 256}, at::kDouble);
  Kernel kernel_{at::randn({4, 3, 3, 5}, at::kDouble), at::randn({4}, at::kDouble), {2, 1}, {1, 0}, {1, 2}, 2};
};

TEST_F(LargeBatch, ConvolutionMatchesTorch) {
  EXPECT_TRUE(close(kernel_.apply(x_), at::conv2d(x_, kernel_.weight, kernel_.bias, {2, 1}, {1, 0}, {1, 2}, 2)));
}

TEST_F(LargeBatch, GradientsMatchTorch) {
  const Tensor g = at::randn_like(kernel_.apply(x_));
  const auto wanted = torch_gradients(g, x_, kernel_);
  const auto [dx, dw, db] = kernel_.backward(g, x_, {true, true, true});
  EXPECT_TRUE(close(dx, std::get<0>(wanted)));
  EXPECT_TRUE(at::allclose(dw, std::get<1>(wanted), 1e-12, 1e-9));  // sums of 32,000 products, in another order
  EXPECT_TRUE(at::allclose(db, std::get<2>(wanted), 1e-12, 1e-9));
}

TEST_F(LargeBatch, UnrequestedGradientsAreNotComputed) {
  const auto [dx, dw, db] = kernel_.backward(at::randn_like(kernel_.apply(x_)), x_, {false, true, false});
  EXPECT_FALSE(dx.defined());
  EXPECT_TRUE(dw.defined());
  EXPECT_FALSE(db.defined());
}

// Splitting the batch would round the weight gradients of each part to eight bits before adding them.
TEST_F(LargeBatch, LowPrecisionGradientsAreIdenticalToTorch) {
  const Tensor x = at::randn({24, 6, 256, 256}).to(at::kBFloat16);
  kernel_.weight = kernel_.weight.to(at::kBFloat16);
  kernel_.bias = kernel_.bias->to(at::kBFloat16);
  const Tensor g = at::randn_like(kernel_.apply(x));
  const auto wanted = torch_gradients(g, x, kernel_);
  const auto [dx, dw, db] = kernel_.backward(g, x, {true, true, true});
  EXPECT_TRUE(at::equal(dw, std::get<1>(wanted)));
  EXPECT_TRUE(at::equal(db, std::get<2>(wanted)));
}

TEST_F(LargeBatch, KeepsChannelsLast) {
  const Tensor last = x_.contiguous(at::MemoryFormat::ChannelsLast);
  const Tensor y = kernel_.apply(last);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(close(y, kernel_.apply(x_)));
}

}  // namespace
}  // namespace weft::spatial
