// The graphs of training steps: their work, their limits, and agreement with the statistics of a real solve.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "weft/multigrid/local_transport.h"
#include "weft/planning/multigrid_graph.h"
#include "weft/planning/pipeline_graph.h"
#include "weft/planning/replay.h"

namespace weft::planning {
namespace {

using layer_parallel::GridOptions;
using layer_parallel::Plan;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

NetworkCosts costs(std::int64_t layers, double forward = 1, double backward = 2, std::int64_t bytes = 100) {
  NetworkCosts result;
  result.layers.assign(static_cast<std::size_t>(layers),
                       {.forward = forward, .recorded = forward, .adjoint = backward, .weighted_adjoint = backward});
  result.state_bytes = bytes;
  return result;
}

Machine machine(int ranks, double latency = 0, double bandwidth = kInfinity) {
  return {.latency = latency, .bandwidth = bandwidth, .cores = ranks, .ranks_per_node = ranks};
}

double work(const Replay& result) {
  double sum = 0;
  for (const double seconds : result.busy) sum += seconds;
  return sum;
}

Replay pipeline(std::int64_t layers, int ranks, std::int64_t micro_batches, double latency = 0,
                double bandwidth = kInfinity) {
  // The costs of the whole batch, divided by the number of micro-batches.
  const double share = 1.0 / static_cast<double>(micro_batches);
  const std::vector<NetworkCosts> parts(static_cast<std::size_t>(micro_batches), costs(layers, share, 2 * share));
  return replay(pipeline_graph(Plan(layers, ranks, 1, {}, {}), parts), machine(ranks, latency, bandwidth));
}

TEST(PipelineGraph, OneRankTakesTheSumOfTheLayers) {
  for (const std::int64_t micro_batches : {1, 3, 8}) EXPECT_NEAR(pipeline(12, 1, micro_batches).seconds, 36, 1e-9);
}

// Each rank works for chunks * t; the first result of the last rank comes after ranks * t.
TEST(PipelineGraph, EfficiencyIsThatOfAPipeline) {
  for (const int ranks : {2, 3, 4, 6}) {
    for (const std::int64_t chunks : {1, 2, 4, 12, 48}) {
      const Replay result = pipeline(12, ranks, chunks);
      const double efficiency = 36.0 / ranks / result.seconds;
      EXPECT_NEAR(efficiency, static_cast<double>(chunks) / static_cast<double>(chunks + ranks - 1), 1e-9)
          << ranks << " ranks, " << chunks << " chunks";
      EXPECT_NEAR(work(result), 36, 1e-9);
    }
  }
}

// A single micro-batch passes every boundary twice, and goes to the loss and back.
TEST(PipelineGraph, LatencyAndBandwidthOfASingleMicroBatch) {
  const int ranks = 4;
  const double messages = 2 * (ranks - 1) + 2;
  const double rounds = 3 * 2;  // three agreements of log2(4) rounds
  EXPECT_NEAR(pipeline(12, ranks, 1, 5).seconds, 36 + 5 * (messages + rounds), 1e-9);
  EXPECT_NEAR(pipeline(12, ranks, 1, 0, 10).seconds, 36 + 100.0 / 10 * messages + 8.0 / 10 * rounds, 1e-9);
}

TEST(PipelineGraph, RanksWithoutLayersAreIdle) {
  const Replay result = pipeline(3, 5, 2);
  EXPECT_EQ(result.busy[3] + result.busy[4], 0);
  EXPECT_NEAR(work(result), 9, 1e-9);
}

multigrid::Options iterations(int count) {
  multigrid::Options options;
  options.max_iterations = count;
  options.compute_residual = false;
  options.initial_guess = multigrid::InitialGuess::kConstant;
  return options;
}

Replay solve(std::int64_t layers, int ranks, int levels, int count, double latency = 0, double bandwidth = kInfinity) {
  const GridOptions grid{.levels = levels, .coarsening = 4};
  const Plan plan(layers, ranks, 1, grid, grid);
  return replay(multigrid_graph(plan, iterations(count), iterations(count), costs(layers)),
                machine(ranks, latency, bandwidth));
}

TEST(MultigridGraph, OneLevelOnOneRankIsThePlainLoop) { EXPECT_NEAR(solve(64, 1, 1, 1).seconds, 3 * 64, 1e-9); }

// 64 steps, 16 coarse ones: F-relaxation with residual (64), coarse residual and solve, whose first step is cached, and
// the final sweep (64).
TEST(MultigridGraph, OneIterationOnOneRankByHand) {
  const double coarse = 2 * 16 - 1;
  EXPECT_NEAR(solve(64, 1, 2, 1).seconds, 3 * (64 + coarse + 64), 1e-9);
}

TEST(MultigridGraph, TheWorkDoesNotDependOnTheNumberOfRanks) {
  const double expected = work(solve(96, 1, 3, 2));
  for (const int ranks : {2, 3, 5, 8, 96, 128}) {
    // Cached steps at the boundary between ranks are evaluated twice: once per rank.
    EXPECT_GE(work(solve(96, ranks, 3, 2)), expected - 1e-9);
    EXPECT_LE(work(solve(96, ranks, 3, 2)), 1.1 * expected) << ranks;
  }
}

TEST(MultigridGraph, MoreRanksAreFasterUntilTheCoarsestLevelDominates) {
  double before = solve(256, 1, 2, 1).seconds;
  for (const int ranks : {2, 4, 8, 16}) {
    const double now = solve(256, ranks, 2, 1).seconds;
    EXPECT_LT(now, before);
    before = now;
  }
  // Serial work remains: the coarsest level in both directions, and the relaxation of one interval per sweep.
  EXPECT_GT(solve(256, 256, 2, 1).seconds, 3 * 64);
}

TEST(MultigridGraph, LatencyAndBandwidthSlowItDown) {
  const double ideal = solve(64, 4, 2, 2).seconds;
  EXPECT_GT(solve(64, 4, 2, 2, 0.5).seconds, ideal);
  EXPECT_GT(solve(64, 4, 2, 2, 0, 100).seconds, ideal);
  EXPECT_GT(solve(64, 4, 2, 2).bytes, 0);
}

TEST(MultigridGraph, TheCostsMustFitThePlan) {
  const Plan plan(8, 2, 1, {}, {});
  EXPECT_THROW(static_cast<void>(multigrid_graph(plan, iterations(1), iterations(1), costs(7))), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(pipeline_graph(plan, {costs(9)})), std::invalid_argument);
}

}  // namespace
}  // namespace weft::planning
