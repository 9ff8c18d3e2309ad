// parallelize in C++: networks of torch's frontend on tiles, against the same network in one process.
#include "weft/spatial/split_sequential.h"

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
#include "weft/spatial/block.h"

namespace weft::spatial {
namespace {

namespace nn = torch::nn;
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

nn::Sequential dense() {
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(torch::kSame)), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2),
      nn::Conv2d(nn::Conv2dOptions(4, 4, 5).padding(2).padding_mode(torch::kReflect)), nn::GroupNorm(2, 4),
      nn::LeakyReLU(), nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(1).padding(1)),
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 3, 2).stride(2)),
      nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)));
}

nn::Sequential classifier() {
  return nn::Sequential(nn::Conv2d(2, 3, 3), nn::Tanh(), nn::Flatten(), nn::Sigmoid(), nn::Linear(3 * 11 * 7, 5),
                        nn::ReLU(), nn::Linear(5, 2));
}

nn::Sequential pooled() {
  return nn::Sequential(nn::Conv2d(2, 3, 3), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(3, 2));
}

// Two networks with the same weights on all ranks.
std::pair<nn::Sequential, nn::Sequential> twins(nn::Sequential (*make)()) {
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

// Results on tiles, and the gradients of all weights.
void expect_same_pass(nn::Sequential& alone, nn::Sequential& given, const SplitSequential& split) {
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

TEST(SplitSequentialTest, DenseNetworkEqualsOneProcess) {
  auto [alone, given] = twins(&dense);
  const SplitSequential split = parallelize(given, column(), {2, 13, 10});
  expect_same_pass(alone, given, split);
  const auto buffers = given->buffers();
  std::size_t i = 0;
  for (const auto& buffer : alone->buffers()) expect_close(buffers[i++], buffer, "running statistics");
}

TEST(SplitSequentialTest, LinearLayersAreSplitAndPutBack) {
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

nn::Sequential nested() {
  return nn::Sequential(
      Block(nn::Conv2d(nn::Conv2dOptions(2, 3, 3).padding(1)), nn::LayerNorm(nn::LayerNormOptions({3, 13, 10}))),
      Block(nn::Mish(), Block(nn::LPPool2d(nn::LPPool2dOptions(2, {2, 2}).stride({1, 1})))),
      nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({6, 5})), nn::Softsign());
}

TEST(SplitSequentialTest, LooksIntoBlocks) {
  auto [alone, given] = twins(&nested);
  const SplitSequential split = parallelize(given, column(), {2, 13, 10});
  expect_same_pass(alone, given, split);
  EXPECT_THAT(split.explain(), HasSubstr("1.1.0  LPPool2dImpl"));
}

TEST(SplitSequentialTest, DropoutDropsTheSameWhateverTheSplit) {
  const auto make = [] {
    return nn::Sequential(nn::Dropout(0.5), nn::Dropout2d(0.3), nn::Flatten(), nn::Dropout(0.2));
  };
  const auto alone =
      c10::make_intrusive<RankGrid>(mpi::Team::adopt(comm()->origin().split(static_cast<int>(rank()), 0)), Shape{1, 1});
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
  EXPECT_FALSE(whole.equal(results[1][1].local)) << "another pass has another mask";
  EXPECT_GT(whole.eq(0).sum().item<std::int64_t>(), whole.numel() / 2) << "0.5, 0.3 and 0.2 leave 28 % of the values";
}

TEST(SplitSequentialTest, ExplainsItself) {
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

TEST(SplitSequentialTest, RefusesByName) {
  EXPECT_THAT(
      text_of([] { (void)parallelize(nn::Sequential(nn::Conv2d(2, 3, 3), nn::Softmax(3)), column(), {2, 9, 9}); }),
      HasSubstr("cannot split '1' (SoftmaxImpl)"));
  EXPECT_THAT(
      text_of([] { (void)parallelize(nn::Sequential(Block(nn::ReLU(), nn::AlphaDropout())), column(), {2, 9, 9}); }),
      HasSubstr("cannot split '0.1' (AlphaDropoutImpl)"));
  EXPECT_THAT(text_of([] { (void)parallelize(nn::Sequential(nn::Conv2d(2, 3, 30)), column(), {2, 9, 9}); }),
              HasSubstr("does not fit into 9 cells"));
  EXPECT_THAT(text_of([] { (void)parallelize(nn::Sequential(nn::Linear(3, 3)), column(), {2, 9, 9}); }),
              HasSubstr("cannot split '0' (Linear)"));
  expect_works(comm());
}

nn::Sequential chained() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)), nn::ReLU(),
                        nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true)),
                        nn::Conv2d(nn::Conv2dOptions(4, 4, {5, 3}).padding({2, 1}).bias(false)), nn::Tanh(),
                        nn::BatchNorm2d(4), nn::Conv2d(nn::Conv2dOptions(4, 3, 3).padding(1)));
}

TEST(SplitSequential, LayersShareAnExchangeWhereTold) {
  auto [alone, given] = twins(&chained);
  const auto split = parallelize(given, column(), {2, 2, 13, 10}, HaloRegions::kAll);
  expect_same_pass(alone, given, split);
  if (size() == 1) return;  // nothing to exchange
  EXPECT_THAT(split.explain(), HasSubstr("0  Conv2d"));
  const std::string table = split.explain();
  std::size_t marked = 0;
  for (std::size_t at = 0; (at = table.find("halo region 1\n", at)) != std::string::npos; ++at) ++marked;
  EXPECT_EQ(marked, 4U) << table;  // to the second convolution: batch normalisation ends it
  EXPECT_THAT(table, testing::Not(HasSubstr("halo region 2")));
}

TEST(SplitSequential, MeasuredRegionsComputeTheSame) {
  auto [alone, given] = twins(&chained);
  const auto split = parallelize(given, column(), {2, 2, 13, 10}, HaloRegions::kMeasured);
  expect_same_pass(alone, given, split);
}

TEST(SplitSequential, RegionsEndWhereTilesAreFlattened) {
  auto [alone, given] = twins(+[] {
    return nn::Sequential(nn::Conv2d(2, 3, 3), nn::Tanh(), nn::Conv2d(3, 3, 3), nn::Sigmoid(), nn::Flatten(),
                          nn::Linear(3 * 9 * 6, 2));
  });
  const auto split = parallelize(given, column(), {2, 2, 13, 10}, HaloRegions::kAll);
  const at::Tensor x = values({2, 2, 13, 10}, 9);
  expect_close(split.whole(x), alone->forward(x), "result");
}

}  // namespace
}  // namespace weft::spatial
