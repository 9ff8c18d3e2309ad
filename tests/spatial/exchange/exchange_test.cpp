// The exchange between tiles and its adjoint: comparison with one process, adjoint identity, second derivatives.
#include "weft/spatial/exchange/exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <chrono>
#include <random>

#include "tests/collective/single_process.h"
#include "tests/mpi/scoped_options.h"
#include "weft/mpi/error.h"
#include "weft/spatial/convolution/convolution.h"
#include "weft/spatial/dist_tensor.h"
#include "weft/spatial/exchange/transfer.h"
#include "weft/spatial/halo.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

using collective::comm;
using collective::expect_close;
using collective::expect_works;
using collective::leaf;
using collective::rank;
using collective::Shape;
using collective::size;
using collective::Tape;
using collective::values;
using partition::Border;
using partition::Window;
using testing::HasSubstr;

// All two-dimensional grids of the ranks.
const std::vector<RankGridPtr>& grids() {
  static const auto all = [] {
    std::vector<RankGridPtr> result;
    for (std::int64_t rows = 1; rows <= size(); ++rows) {
      if (size() % rows == 0) result.push_back(c10::make_intrusive<RankGrid>(comm(), Shape{rows, size() / rows}));
    }
    return result;
  }();
  return all;
}

// Random cuts, the same on all ranks. Some tiles are empty.
LayoutPtr random_layout(const RankGridPtr& grid, const Shape& shape, std::mt19937& random) {
  std::vector<partition::Cuts> cuts;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    Shape sizes;
    std::int64_t left = shape[i];
    for (std::int64_t part = 1; part < grid->grid().extents()[i]; ++part) {
      sizes.push_back(std::uniform_int_distribution<std::int64_t>(0, left)(random));
      left -= sizes.back();
    }
    sizes.push_back(left);
    cuts.push_back(partition::Cuts::of_sizes(sizes));
  }
  return c10::make_intrusive<Layout>(grid, partition::Tiling(grid->grid(), std::move(cuts)));
}

at::Tensor sum_over_ranks(const at::Tensor& x) {
  const collective::TapeScope off(false);
  return collective::all_reduce(x.detach(), comm());
}

// Checks <A x, y> = <x, A' y>, both summed over the ranks.
void expect_adjoint(const HaloPlanPtr& plan, std::int64_t seed, const std::string& what) {
  const auto x = values(plan->sizes(at::empty({2, 3, 0, 0}), plan->owned()), seed + rank());
  const auto y = values(plan->sizes(at::empty({2, 3, 0, 0}), plan->needed()), seed + 100 + rank());
  const auto left = sum_over_ranks((halo_exchange(x, plan) * y).sum());
  const auto right = sum_over_ranks((x * halo_accumulate(y, plan)).sum());
  expect_close(left, right, what);
}

class ExchangeTest : public testing::Test {
 protected:
  void TearDown() override { Tape::current().reset(); }
};

TEST_F(ExchangeTest, HaloExchangeSatisfiesTheAdjointIdentity) {
  std::mt19937 random(1);
  for (const auto& grid : grids()) {
    for (const Border border : {Border::kZeros, Border::kReflect, Border::kReplicate, Border::kCircular}) {
      for (int repeat = 0; repeat < 6; ++repeat) {
        const auto layout = random_layout(grid, {9, 7}, random);
        const std::vector<Window> windows{{3, 1 + repeat % 3, 2, 2, 1 + repeat % 2}, {4, 1, 3, 1, 1}};
        expect_adjoint(halo_of(layout, windows, border).plan, repeat, "border " + std::to_string(int(border)));
      }
    }
  }
}

TEST_F(ExchangeTest, MovesTilesBetweenLayoutsAndRoot) {
  std::mt19937 random(2);
  const at::Tensor whole = values({2, 3, 9, 7}, 5);
  for (const auto& grid : grids()) {
    const auto layout = random_layout(grid, {9, 7}, random);
    const auto other = random_layout(grid, {9, 7}, random);
    const DistTensor x = tile_of(whole, layout);
    expect_close(repartition(x, other).local, tile_of(whole, other).local, "repartition");
    expect_close(all_gather(x), whole, "all_gather");
    const at::Tensor at_root = gather(x, size() - 1);
    if (rank() == size() - 1) {
      expect_close(at_root, whole, "gather");
    } else {
      EXPECT_EQ(at_root.numel(), 0);
    }
    const auto given = rank() == 0 ? std::optional<at::Tensor>(whole) : std::nullopt;
    expect_close(scatter(given, layout, 0).local, x.local, "scatter");
  }
}

TEST_F(ExchangeTest, AllGatherAndScatterHaveCorrectGradients) {
  std::mt19937 random(3);
  for (const auto& grid : grids()) {
    const auto layout = random_layout(grid, {8, 5}, random);
    const at::Tensor whole = values({1, 2, 8, 5}, 1);
    const at::Tensor weight = values({1, 2, 8, 5}, 2);
    DistTensor x = tile_of(whole, layout);
    x.local = leaf(x.local);
    // Every rank computes its loss from the whole tensor, so the sum of all losses counts it once per rank.
    backward((all_gather(x) * weight).sum());
    expect_close(x.local.grad(), tile_of(weight * size(), layout).local, "all_gather");
    x.local = leaf(x.local);
    backward((counted_once(all_gather(x), grid->comm()) * weight).sum());
    expect_close(x.local.grad(), tile_of(weight, layout).local, "counted once");
    const at::Tensor source = rank() == 0 ? leaf(whole) : at::Tensor();
    const auto given = source.defined() ? std::optional<at::Tensor>(source) : std::nullopt;
    backward((scatter(given, layout, 0).local * tile_of(weight, layout).local).sum());
    if (rank() == 0) expect_close(source.grad(), weight, "scatter");
  }
}

TEST_F(ExchangeTest, RetileGivesEveryRankTheWholeGradient) {
  const auto layout = Layout::balanced(grids().front(), {7, 6});
  const at::Tensor whole = leaf(values({1, 2, 7, 6}, 1));
  const at::Tensor weight = values({1, 2, 7, 6}, 2);
  backward((retile(whole, layout).local * tile_of(weight, layout).local).sum());
  expect_close(whole.grad(), weight);
}

TEST_F(ExchangeTest, SharedWeightsSumTheirGradients) {
  const at::Tensor a = leaf(values({3}, 1));
  const at::Tensor b = leaf(values({2, 2}, 2));
  const auto shared = share({a, b}, comm());
  backward((shared[0] * values({3}, 10 + rank())).sum() + (shared[1] * (rank() + 1)).sum());
  at::Tensor expected = at::zeros({3}, at::kDouble);
  for (std::int64_t r = 0; r < size(); ++r) expected = expected + values({3}, 10 + r);
  expect_close(a.grad(), expected);
  expect_close(b.grad(), at::full({2, 2}, size() * (size() + 1) / 2.0, at::kDouble));
}

// With separate edges, backward uses recorded operations only if the caller creates a graph.
TEST_F(ExchangeTest, ConvolutionHasCorrectSecondDerivatives) {
  const auto layout = Layout::balanced(grids().front(), {2 * size() + 1, 5});
  const at::Tensor whole = values({1, 2, 2 * size() + 1, 5}, 1);
  const at::Tensor kernel = values({2, 2, 3, 3}, 2);
  const auto loss_of = [&](const DistTensor& x, const at::Tensor& w) {
    const at::Tensor y = convolution(x, w, std::nullopt, {.padding = {1}, .edges = Edges::kApart}).local;
    return (y * y * y).sum();
  };
  const auto second = [&](const DistTensor& x, const at::Tensor& w) {
    const auto first = grad(loss_of(x, w), {x.local, w}, std::nullopt, true, true);
    return grad((first[0] * first[0]).sum() + (first[1] * first[1]).sum() / size(), {x.local, w});
  };
  const auto alone = c10::make_intrusive<RankGrid>(
      Communicator::adopt(comm()->origin().split(static_cast<int>(rank()), 0)), Shape{1, 1});
  DistTensor one{leaf(whole), Layout::balanced(alone, {2 * size() + 1, 5})};
  const at::Tensor w1 = leaf(kernel);
  const auto first = grad(loss_of(one, w1), {one.local, w1}, std::nullopt, true, true);
  const auto expected = grad((first[0] * first[0]).sum() + (first[1] * first[1]).sum(), {one.local, w1});
  DistTensor x = tile_of(whole, layout);
  x.local = leaf(x.local);
  const at::Tensor w = leaf(kernel);
  const auto actual = second(x, w);
  expect_close(actual[0], tile_of(expected[0], layout).local, "by the input", 1e-11);
  expect_close(actual[1], expected[1], "by the weight", 1e-11);
}

TEST_F(ExchangeTest, SeparateEdgesMatchPaddedEdges) {
  std::mt19937 random(4);
  for (const auto& grid : grids()) {
    const auto layout = random_layout(grid, {11, 9}, random);
    const at::Tensor whole = values({2, 3, 11, 9}, 1);
    const at::Tensor kernel = values({4, 3, 3, 5}, 2);
    std::vector<at::Tensor> results;
    for (const Edges edges : {Edges::kPadded, Edges::kApart}) {
      DistTensor x = tile_of(whole, layout);
      x.local = leaf(x.local);
      const at::Tensor w = leaf(kernel);
      ConvolutionOptions options{.padding = {1, 2}};
      options.edges = edges;
      const at::Tensor y = convolution(x, w, std::nullopt, options).local;
      backward((y * y).sum());
      for (const auto& tensor : {y, x.local.grad(), w.grad()}) results.push_back(tensor);
    }
    for (std::size_t i = 0; i < 3; ++i) expect_close(results[i + 3], results[i], "part " + std::to_string(i), 1e-13);
  }
}

TEST_F(ExchangeTest, NaNReachesTheHalo) {
  const auto layout = Layout::balanced(grids().front(), {size() * 2, 3});
  at::Tensor whole = values({1, 1, size() * 2, 3}, 1);
  whole.mutable_data_ptr<double>()[3] = std::numeric_limits<double>::quiet_NaN();  // row 1, the last row of rank 0
  const Halo halo = halo_of(layout, std::vector<Window>{{3, 1, 1, 1}, {1, 1}});
  const at::Tensor padded = halo_exchange(tile_of(whole, layout).local, halo.plan);
  // The first grid has a single row of tiles, so every rank has all rows of its columns.
  EXPECT_EQ(padded.isnan().any().item<bool>(), layout->tile().ranges[1].contains(0));
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

TEST_F(ExchangeTest, TileOfTheWrongSizeThrowsOnAllRanks) {
  const auto grid = grids().back();  // one column of tiles: every rank has rows
  const auto layout = Layout::balanced(grid, {2 * size(), 4});
  const Halo halo = halo_of(layout, std::vector<Window>{{3, 1, 1, 1}, {3, 1, 1, 1}});
  if (!halo.plan->communicates()) return;
  const at::Tensor x = values({1, 1, rank() == 0 ? 5 : 2, 4}, 1);
  EXPECT_THAT(text_of([&] { (void)halo_exchange(x, halo.plan); }), HasSubstr("rank 0 expects a tile of [2, 4] cells"));
  expect_works(grid->comm());
}

TEST_F(ExchangeTest, DifferentWindowsThrowOnAllRanks) {
  if (size() == 1) return;
  const auto grid = grids().back();
  const auto layout = Layout::balanced(grid, {2 * size(), 4});
  const std::int64_t reach = rank() == 0 ? 1 : 2;
  const Halo halo = halo_of(layout, std::vector<Window>{{2 * reach + 1, 1, reach, reach}, {1, 1}});
  EXPECT_THAT(text_of([&] { (void)halo_exchange(values({1, 1, 2, 4}, 1), halo.plan); }), HasSubstr("halo_exchange"));
  expect_works(grid->comm());
}

TEST_F(ExchangeTest, RecoversAfterARankFailsBetweenExchanges) {
  if (size() == 1) return;
  const auto grid = grids().back();
  const auto layout = Layout::balanced(grid, {2 * size(), 4});
  const Halo halo = halo_of(layout, std::vector<Window>{{3, 1, 1, 1}, {3, 1, 1, 1}});
  const at::Tensor x = values({1, 1, 2, 4}, 1);
  if (rank() == 0) {
    grid->comm()->raise_alarm("a test");
  } else {
    EXPECT_THAT(text_of([&] { (void)halo_exchange(x, halo.plan); }), HasSubstr("a test"));
  }
  // The ranks have now counted different numbers of exchanges. They still agree on the next number.
  expect_works(grid->comm());
  EXPECT_EQ(halo_exchange(x, halo.plan).size(2), 4);
}

Halo rows_around() {
  const auto layout = Layout::balanced(grids().back(), {2 * size(), 4});
  return halo_of(layout, std::vector<Window>{{3, 1, 1, 1}, {1, 1}});
}

// Uses a layer twice before the backward of either use. The second exchange must not overwrite the first halo.
TEST_F(ExchangeTest, ReusedPlansKeepTheHaloOfEachUse) {
  const auto layout = Layout::balanced(grids().back(), {3 * size(), 5});
  const at::Tensor kernel = values({2, 2, 3, 3}, 2);
  std::vector<at::Tensor> gradients;
  for (const Edges edges : {Edges::kPadded, Edges::kApart}) {
    const at::Tensor w = leaf(kernel.clone());
    at::Tensor loss = at::zeros({}, at::kDouble);
    std::vector<DistTensor> uses;
    for (int use = 0; use < 4; ++use) {
      DistTensor& x = uses.emplace_back(tile_of(values({1, 2, 3 * size(), 5}, 10 + use), layout));
      x.local = leaf(x.local.clone());
      const at::Tensor y = convolution(x, w, std::nullopt, {.padding = {1}, .edges = edges}).local;
      loss = loss + (y * y * (use + 1)).sum();
    }
    backward(loss);
    gradients.push_back(w.grad());
    for (const DistTensor& x : uses) gradients.push_back(x.local.grad());
  }
  for (std::size_t i = 0; i < 5; ++i) expect_close(gradients[i + 5], gradients[i], "part " + std::to_string(i), 1e-12);
}

TEST_F(ExchangeTest, PlanReusesItsBuffers) {
  if (size() == 1) return;
  const Halo halo = rows_around();
  const std::size_t before = halo.plan->buffers().size();
  for (int round = 0; round < 5; ++round) {
    (void)halo_exchange(values({1, 1, 2, 4}, round), halo.plan);
    EXPECT_EQ(halo.plan->buffers().size(), std::max<std::size_t>(before, 1)) << "round " << round;
  }
  // Other leading sizes and types need other buffers, which replace the previous ones.
  EXPECT_EQ(halo_exchange(values({2, 3, 2, 4}, 1), halo.plan).size(1), 3);
  EXPECT_EQ(halo_exchange(values({2, 3, 2, 4}, 1).to(at::kFloat), halo.plan).scalar_type(), at::kFloat);
  EXPECT_EQ(halo.plan->buffers().size(), 1);
}

// Rank 1 abandons an exchange in which the other ranks never sent. Its open receives must not take the messages of the
// next exchange, and its own messages must not arrive in it.
TEST_F(ExchangeTest, AbandonedExchangeDoesNotAffectTheNext) {
  if (size() == 1) return;
  const Halo halo = rows_around();
  const at::Tensor x = values({1, 1, 2, 4}, rank());
  const at::Tensor before = halo_exchange(x, halo.plan);
  const int tag = agree_on_exchange("halo_exchange", x, *halo.plan, halo.plan->owned());
  if (rank() == 1) {
    const mpi::ScopedOptions impatient([](mpi::Options& options) { options.timeout = std::chrono::milliseconds(100); });
    Transfer transfer = Transfer::of_cells(x.neg(), *halo.plan, mpi::Direction::kForward, tag);
    const auto ignore = [](const partition::Piece&, const at::Tensor&) {};
    EXPECT_THAT(text_of([&] { transfer.finish_cells(*halo.plan, ignore); }), HasSubstr("gave up after"));
  } else {
    halo.plan->epoch().finish();  // pretend success on this rank; one rank that saw the failure is enough
  }
  expect_close(halo_exchange(x, halo.plan), before, "the next exchange");
  expect_works(grids().back()->comm());
}

TEST_F(ExchangeTest, GridOfTheWrongSizeThrows) {
  EXPECT_THAT(text_of([] { c10::make_intrusive<RankGrid>(comm(), Shape{size() + 1, 1}); }),
              HasSubstr("needs " + std::to_string(size() + 1) + " ranks"));
  expect_works(comm());
}

}  // namespace
}  // namespace weft::spatial
