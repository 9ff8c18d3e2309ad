// parallelize() in C++: compares split torch::nn networks with the same networks in one process.
#include "weft/spatial/nn/split_sequential.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include "tests/collective/single_process.h"
#include "weft/spatial/nn/block.h"

namespace weft::spatial::nn {
namespace {

namespace tnn = torch::nn;
using collective::comm;
using collective::expect_close;
using collective::expect_works;
using collective::rank;
using collective::Shape;
using collective::size;
using collective::values;
using testing::HasSubstr;

RankGridPtr column() {
  static const auto grid = c10::make_intrusive<RankGrid>(comm(), Shape{size(), 1});
  return grid;
}

tnn::Sequential dense() {
  return tnn::Sequential(
      tnn::Conv2d(tnn::Conv2dOptions(2, 4, 3).padding(torch::kSame)), tnn::BatchNorm2d(4), tnn::ReLU(),
      tnn::MaxPool2d(2), tnn::Conv2d(tnn::Conv2dOptions(4, 4, 5).padding(2).padding_mode(torch::kReflect)),
      tnn::GroupNorm(2, 4), tnn::LeakyReLU(), tnn::AvgPool2d(tnn::AvgPool2dOptions(3).stride(1).padding(1)),
      tnn::ConvTranspose2d(tnn::ConvTranspose2dOptions(4, 3, 2).stride(2)),
      tnn::Upsample(tnn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)));
}

tnn::Sequential classifier() {
  return tnn::Sequential(tnn::Conv2d(2, 3, 3), tnn::Tanh(), tnn::Flatten(), tnn::Sigmoid(), tnn::Linear(3 * 11 * 7, 5),
                         tnn::ReLU(), tnn::Linear(5, 2));
}

tnn::Sequential pooled() {
  return tnn::Sequential(tnn::Conv2d(2, 3, 3), tnn::AdaptiveAvgPool2d(1), tnn::Flatten(), tnn::Linear(3, 2));
}

// Two networks with the same weights on all ranks.
std::pair<tnn::Sequential, tnn::Sequential> twins(tnn::Sequential (*make)()) {
  auto a = make();
  auto b = make();
  a->to(at::kDouble);
  b->to(at::kDouble);
  std::int64_t seed = 0;
  const at::NoGradGuard no_grad;
  auto theirs = b->parameters();
  for (const auto& parameter : a->parameters()) {
    parameter.copy_(values(parameter.sizes(), ++seed) * 0.3);
    theirs[static_cast<std::size_t>(seed) - 1].copy_(parameter);
  }
  return {a, b};
}

// Compares results on tiles and the gradients of all weights.
void expect_same_pass(tnn::Sequential& alone, tnn::Sequential& given, const SplitSequential& split) {
  const at::Tensor x = values({2, 2, 13, 10}, 9);
  const at::Tensor expected = alone->forward(x);
  const at::Tensor weight = values(expected.sizes(), 10);
  (expected * weight).sum().backward();
  const DistTensor y = split.tiles(x);
  expect_close(y.local, tile_of(expected, y.layout).local, "result");
  backward((y.local * tile_of(weight, y.layout).local).sum());
  const auto theirs = given->parameters();
  std::size_t i = 0;
  for (const auto& parameter : alone->parameters()) expect_close(theirs[i++].grad(), parameter.grad(), "gradient");
}

TEST(SplitSequentialTest, DenseNetworkMatchesOneProcess) {
  auto [alone, given] = twins(&dense);
  const SplitSequential split = parallelize(given, column(), {2, 13, 10});
  expect_same_pass(alone, given, split);
  const auto buffers = given->buffers();
  std::size_t i = 0;
  for (const auto& buffer : alone->buffers()) expect_close(buffers[i++], buffer, "running statistics");
}

TEST(SplitSequentialTest, SplitsLinearLayersAndSavesThem) {
  for (auto* const make : {&classifier, &pooled}) {
    auto [alone, given] = twins(make);
    SplitSequential split = parallelize(given, column(), {2, 13, 9});
    const at::Tensor x = values({2, 2, 13, 9}, 9);
    const at::Tensor expected = alone->forward(x);
    const at::Tensor weight = values(expected.sizes(), 10);
    (expected * weight).sum().backward();
    const at::Tensor y = split.whole(x);
    expect_close(y, expected, "result");
    backward((y * weight).sum());
    const at::NoGradGuard no_grad;
    for (const auto& parameter : split.parameters()) parameter.sub_(parameter.grad());
    split.save();
    const auto theirs = given->parameters();
    std::size_t i = 0;
    for (const auto& parameter : alone->parameters()) {
      expect_close(theirs[i++], parameter - parameter.grad(), "after a step");
    }
  }
}

tnn::Sequential nested() {
  return tnn::Sequential(
      Block(tnn::Conv2d(tnn::Conv2dOptions(2, 3, 3).padding(1)), tnn::LayerNorm(tnn::LayerNormOptions({3, 13, 10}))),
      Block(tnn::Mish(), Block(tnn::LPPool2d(tnn::LPPool2dOptions(2, {2, 2}).stride({1, 1})))),
      tnn::AdaptiveMaxPool2d(tnn::AdaptiveMaxPool2dOptions({6, 5})), tnn::Softsign());
}

TEST(SplitSequentialTest, SplitsBlocks) {
  auto [alone, given] = twins(&nested);
  const SplitSequential split = parallelize(given, column(), {2, 13, 10});
  expect_same_pass(alone, given, split);
  EXPECT_THAT(split.explain(), HasSubstr("1.1.0  LPPool2dImpl"));
}

TEST(SplitSequentialTest, DropoutMasksDoNotDependOnTheSplit) {
  const auto make = [] {
    return tnn::Sequential(tnn::Dropout(0.5), tnn::Dropout2d(0.3), tnn::Flatten(), tnn::Dropout(0.2));
  };
  const auto alone = c10::make_intrusive<RankGrid>(
      Communicator::adopt(comm()->origin().split(static_cast<int>(rank()), 0)), Shape{1, 1});
  std::vector<std::vector<DistTensor>> results;
  for (const auto& grid : {column(), alone}) {
    at::manual_seed(5);
    const SplitSequential split = parallelize(make(), grid, {4, 11, 6});
    auto& passes = results.emplace_back();
    for (int pass = 0; pass < 2; ++pass) {
      passes.push_back(std::get<Flattened>(split.forward(values({2, 4, 11, 6}, 9))).tiles);
    }
  }
  const at::Tensor whole = results[1][0].local;
  expect_close(results[0][0].local, tile_of(whole, results[0][0].layout).local, "the first pass");
  expect_close(results[0][1].local, tile_of(results[1][1].local, results[0][1].layout).local, "the second pass");
  EXPECT_FALSE(whole.equal(results[1][1].local)) << "the second pass must use another mask";
  EXPECT_GT(whole.eq(0).sum().item<std::int64_t>(), whole.numel() / 2) << "0.5, 0.3 and 0.2 keep 28 % of the values";
}

TEST(SplitSequentialTest, ExplainsLayersAndTiles) {
  const SplitSequential split = parallelize(dense(), column(), {2, 13, 10});
  EXPECT_THAT(split.explain(), HasSubstr("0  Conv2dImpl  [1, 4, 13, 10], tile " + split.layout()->tile().describe()));
  EXPECT_THAT(split.explain(), HasSubstr("5  GroupNormImpl"));
}

template <class Run>
std::string text_of(Run&& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(SplitSequentialTest, NamesLayersThatCannotBeSplit) {
  EXPECT_THAT(
      text_of([] { (void)parallelize(tnn::Sequential(tnn::Conv2d(2, 3, 3), tnn::Softmax(3)), column(), {2, 9, 9}); }),
      HasSubstr("cannot split '1' (SoftmaxImpl)"));
  EXPECT_THAT(
      text_of([] { (void)parallelize(tnn::Sequential(Block(tnn::ReLU(), tnn::AlphaDropout())), column(), {2, 9, 9}); }),
      HasSubstr("cannot split '0.1' (AlphaDropoutImpl)"));
  EXPECT_THAT(text_of([] { (void)parallelize(tnn::Sequential(tnn::Conv2d(2, 3, 30)), column(), {2, 9, 9}); }),
              HasSubstr("does not fit into 9 cells"));
  EXPECT_THAT(text_of([] { (void)parallelize(tnn::Sequential(tnn::Linear(3, 3)), column(), {2, 9, 9}); }),
              HasSubstr("cannot split '0' (Linear)"));
  expect_works(comm());
}

tnn::Sequential chained() {
  return tnn::Sequential(tnn::Conv2d(tnn::Conv2dOptions(2, 4, 3).padding(1)), tnn::ReLU(),
                         tnn::MaxPool2d(tnn::MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true)),
                         tnn::Conv2d(tnn::Conv2dOptions(4, 4, {5, 3}).padding({2, 1}).bias(false)), tnn::Tanh(),
                         tnn::BatchNorm2d(4), tnn::Conv2d(tnn::Conv2dOptions(4, 3, 3).padding(1)));
}

TEST(SplitSequentialTest, SharesExchangesInHaloRegions) {
  auto [alone, given] = twins(&chained);
  const auto split = parallelize(given, column(), {2, 2, 13, 10}, HaloRegions::kAll);
  expect_same_pass(alone, given, split);
  if (size() == 1) return;  // nothing to exchange
  EXPECT_THAT(split.explain(), HasSubstr("0  Conv2d"));
  const std::string table = split.explain();
  std::size_t marked = 0;
  for (std::size_t at = 0; (at = table.find("halo region 1\n", at)) != std::string::npos; ++at) ++marked;
  EXPECT_EQ(marked, 4U) << table;  // up to the second convolution, because batch normalization ends the region
  EXPECT_THAT(table, testing::Not(HasSubstr("halo region 2")));
}

TEST(SplitSequentialTest, MeasuredRegionsComputeTheSame) {
  auto [alone, given] = twins(&chained);
  const auto split = parallelize(given, column(), {2, 2, 13, 10}, HaloRegions::kMeasured);
  expect_same_pass(alone, given, split);
}

TEST(SplitSequentialTest, FlattenEndsARegion) {
  auto [alone, given] = twins(+[] {
    return tnn::Sequential(tnn::Conv2d(2, 3, 3), tnn::Tanh(), tnn::Conv2d(3, 3, 3), tnn::Sigmoid(), tnn::Flatten(),
                           tnn::Linear(3 * 9 * 6, 2));
  });
  const auto split = parallelize(given, column(), {2, 2, 13, 10}, HaloRegions::kAll);
  const at::Tensor x = values({2, 2, 13, 10}, 9);
  expect_close(split.whole(x), alone->forward(x), "result");
}

}  // namespace
}  // namespace weft::spatial::nn
