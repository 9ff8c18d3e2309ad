// Compares layers that share one exchange with one process: results and gradients, on uneven and empty tiles.
#include "weft/spatial/region.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/sigmoid.h>
#include <gmock/gmock.h>

#include <limits>

#include "tests/collective/single_process.h"

namespace weft::spatial {
namespace {

using collective::backward;
using collective::comm;
using collective::expect_close;
using collective::leaf;
using collective::rank;
using collective::Shape;
using collective::size;
using collective::values;
using partition::Window;

const std::vector<std::vector<Window>> kWindows = {
    {{3, 1, 1, 1}, {3, 1, 1, 1}}, {{2, 2, 1, 1}, {3, 1, 1, 1}}, {{5, 1, 2, 2}, {3, 1, 1, 1}}};

at::Tensor serial(const at::Tensor& x, const at::Tensor& first, const at::Tensor& last) {
  const at::Tensor y = at::max_pool2d(at::sigmoid(at::conv2d(x, first, {}, 1, 1)), {2, 3}, {2, 1}, {1, 1});
  return at::conv2d(y, last, {}, 1, {2, 1});
}

std::vector<RegionLayer> layers(const at::Tensor& first, const at::Tensor& last) {
  const auto convolution = [](const std::vector<Window>& windows, const at::Tensor& weight) {
    return RegionLayer{
        windows, 0, weight.size(0), {weight}, [](const at::Tensor& x, const auto& weights, const Sizes& padding) {
          return at::conv2d(x, weights[0], {}, 1, padding);
        }};
  };
  const auto pool = [](const at::Tensor& x, const auto&, const Sizes& padding) {
    return at::max_pool2d(x, {2, 3}, {2, 1}, padding);
  };
  const auto activate = [](const at::Tensor& x, const auto&, const Sizes&) { return at::sigmoid(x); };
  return {convolution(kWindows[0], first),
          {.apply = activate},
          {.windows = kWindows[1], .fill = -std::numeric_limits<double>::infinity(), .apply = pool},
          convolution(kWindows[2], last)};
}

// The first rank has two rows and the last rank all others. The ranks between are empty, so halos come from far away.
LayoutPtr uneven(const RankGridPtr& grid, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> parts(static_cast<std::size_t>(size()), 0);
  parts.back() = rows;
  if (size() > 1) parts.front() = 2;
  if (size() > 1) parts.back() = rows - 2;
  return c10::make_intrusive<Layout>(
      grid, partition::Tiling(grid->grid(), {partition::Cuts::of_sizes(parts), partition::Cuts::of_sizes({columns})}));
}

void expect_equal_to_one_process(const LayoutPtr& layout) {
  const at::Tensor whole = leaf(values({2, 2, 13, 6}, 1));
  const at::Tensor first = leaf(values({3, 2, 3, 3}, 2));
  const at::Tensor last = leaf(values({2, 3, 5, 3}, 3));
  const at::Tensor expected = serial(whole, first, last);
  const at::Tensor weight = values(expected.sizes(), 4);
  (expected * weight).sum().backward();

  DistTensor x = tile_of(whole.detach(), layout);
  x.local = leaf(x.local.clone());
  const at::Tensor a = leaf(first.detach().clone());
  const at::Tensor b = leaf(last.detach().clone());
  const Region region(layout, kWindows);
  const DistTensor y = run_region(x, region, layers(a, b));
  expect_close(y.local, tile_of(expected.detach(), y.layout).local, "result", 1e-12);
  backward((y.local * tile_of(weight, y.layout).local).sum());
  const at::Tensor dx = x.local.grad();
  if (dx.defined()) expect_close(dx, tile_of(whole.grad(), layout).local, "gradient of the input", 1e-12);
  expect_close(a.grad(), first.grad(), "gradient of the first weight", 1e-12);
  expect_close(b.grad(), last.grad(), "gradient of the last weight", 1e-12);
}

TEST(RegionTest, MatchesOneProcess) {
  for (const Shape& extents : {Shape{size(), 1}, Shape{1, size()}}) {
    expect_equal_to_one_process(Layout::balanced(c10::make_intrusive<RankGrid>(comm(), extents), {13, 6}));
  }
}

TEST(RegionTest, MatchesOneProcessOnUnevenTiles) {
  expect_equal_to_one_process(uneven(c10::make_intrusive<RankGrid>(comm(), Shape{size(), 1}), 13, 6));
}

TEST(RegionTest, RejectsWindowsThatDoNotFit) {
  const auto layout = Layout::balanced(c10::make_intrusive<RankGrid>(comm(), Shape{size(), 1}), {13, 6});
  EXPECT_THROW(Region(layout, {{{30, 1}, {1, 1}}}), std::invalid_argument);
  EXPECT_THROW(Region(layout, {}), std::invalid_argument);
}

}  // namespace
}  // namespace weft::spatial
