// Compares the solver with a simple implementation on full arrays, for random options, grids and splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/multigrid/cases.h"
#include "tests/multigrid/dense_reference.h"

namespace weft::multigrid {
namespace {

std::vector<std::int64_t> factors_of(const Case& setup) {
  std::vector<std::int64_t> factors;
  std::int64_t steps = setup.steps;
  for (int level = 0; level < setup.grids.max_levels; ++level) {
    factors.push_back(setup.grids.coarsening[level]);
    steps /= factors.back();
    if (steps < setup.grids.min_coarse_steps) break;
  }
  return factors;
}

void expect_same(const Found& found, const DenseResult& reference, const Case& setup, double tolerance = 1e-11) {
  ASSERT_EQ(found.residuals.size(), reference.residuals.size());
  for (std::size_t i = 0; i < found.residuals.size(); ++i) {
    ASSERT_EQ(found.residuals[i].has_value(), reference.residuals[i].has_value());
    if (found.residuals[i]) {
      EXPECT_NEAR(*found.residuals[i], *reference.residuals[i], tolerance * (1 + *reference.residuals[i]));
    }
  }
  EXPECT_EQ(found.steps, reference.steps);
  EXPECT_EQ(found.converged, reference.converged);
  for (std::int64_t i = 0; i <= setup.steps; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool c_point = i % setup.grids.coarsening[0] == 0;
    const bool swept = setup.options.final_sweep != FinalSweep::kNone;
    if (c_point || (swept && setup.options.storage == Storage::kAllPoints)) {
      expect_near(found.u[at], reference.u[at], tolerance, i);
    }
    if (swept) expect_near(found.shown[at], reference.u[at], tolerance, i);
  }
}

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  std::int64_t roll(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine_);
  }
  bool flip() { return roll(0, 1) == 1; }
  std::vector<std::int64_t> offsets(std::int64_t points, int ranks) {
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(ranks) + 1);
    for (auto& offset : offsets) offset = roll(0, points);
    offsets.front() = 0;
    offsets.back() = points;
    std::sort(offsets.begin(), offsets.end());
    return offsets;
  }

 private:
  std::mt19937 engine_;
};

Case random_case(Dice& dice, const Model& model) {
  Case setup;
  setup.steps = dice.roll(1, 45);
  setup.ranks = static_cast<int>(dice.roll(1, 13));
  setup.grids.max_levels = static_cast<int>(dice.roll(1, 5));
  setup.grids.coarsening = dice.roll(2, 5);
  setup.grids.coarsening.set(1, dice.roll(2, 4));
  setup.grids.min_coarse_steps = dice.roll(1, 3);
  setup.grids.t_begin = -0.5;
  setup.grids.t_end = 0.05 * static_cast<double>(setup.steps);
  if (dice.flip()) setup.grids.offsets = dice.offsets(setup.steps + 1, setup.ranks);
  if (dice.flip()) {
    for (std::int64_t i = 0; i <= setup.steps; ++i) setup.grids.times.push_back(0.002 * static_cast<double>(i * i));
  }
  Options& options = setup.options;
  options.max_iterations = static_cast<int>(dice.roll(0, 4));
  options.absolute_tolerance = dice.flip() ? 1e-3 : 0;
  options.relative_tolerance = dice.flip() ? 1e-2 : 0;
  options.temporal_norm = static_cast<TemporalNorm>(dice.roll(0, 2));
  options.compute_residual = dice.roll(0, 3) > 0;
  options.relaxations = PerLevel<int>(static_cast<int>(dice.roll(0, 2))).set(0, static_cast<int>(dice.roll(0, 2)));
  if (dice.flip()) options.c_weight = PerLevel<double>(1.2).set(1, 0.7);
  options.cycle = dice.flip() ? CycleKind::kV : CycleKind::kF;
  options.skip_downcycle = dice.flip();
  options.relax_coarsest_only = dice.roll(0, 3) == 0;
  options.storage = dice.flip() ? Storage::kAllPoints : Storage::kCPoints;
  options.initial_guess = static_cast<InitialGuess>(dice.roll(0, 3));
  const bool one_size = model.size(0, 0) == model.size(0, 1);
  if (options.initial_guess == InitialGuess::kConstant && !one_size) options.initial_guess = InitialGuess::kZero;
  options.final_sweep = static_cast<FinalSweep>(dice.roll(0, 2));
  setup.announces_sizes = dice.flip();
  return setup;
}

struct Named {
  const char* name;
  Model (*model)();
};

// The number of seeds; WEFT_TEST_SEEDS overrides it.
unsigned seeds() {
  const char* wanted = std::getenv("WEFT_TEST_SEEDS");
  return wanted != nullptr ? static_cast<unsigned>(std::stoul(wanted)) : 250;
}

class RandomSolves : public testing::TestWithParam<Named> {};

TEST_P(RandomSolves, MatchTheSimpleImplementation) {
  const Model model = GetParam().model();
  int with_levels = 0;
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    Dice dice(seed);
    const Case setup = random_case(dice, model);
    const auto factors = factors_of(setup);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(setup.steps) + " steps, " +
                 std::to_string(setup.ranks) + " ranks, " + std::to_string(factors.size()) + " levels");
    const Found found = solve(model, setup);
    if (factors.size() == 1) {
      expect_near(found.shown.back(), serial_end(model, setup), 0, setup.steps);
      EXPECT_EQ(found.steps, setup.steps);
    } else {
      ++with_levels;
      expect_same(found, DenseReference(model, times_of(setup), factors, setup.options).run(), setup);
    }
    if (HasFailure()) return;  // the report of one seed is enough
  }
  EXPECT_GT(with_levels, static_cast<int>(seeds() / 3));
}

INSTANTIATE_TEST_SUITE_P(Models, RandomSolves,
                         testing::Values(Named{"pendulum", pendulum}, Named{"shape_shifter", shape_shifter},
                                         Named{"diffusion", diffusion}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::multigrid
