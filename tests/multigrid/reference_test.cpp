// The solver, with ranks as threads, against a plain implementation on full arrays, for every option; and its
// exactness.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/multigrid/dense_reference.h"
#include "tests/multigrid/model.h"
#include "tests/multigrid/thread_transport.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {
namespace {

struct Case {
  std::int64_t steps = 0;
  int ranks = 1;
  HierarchyOptions grids;
  Options options;
  bool announces_sizes = true;
};

// What all ranks found together.
struct Found {
  std::vector<Vector> u;      // at fine points that are held; others are empty
  std::vector<Vector> shown;  // to access()
  std::vector<std::optional<double>> residuals;
  std::int64_t steps = 0;
  bool converged = false;
};

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

std::vector<double> times_of(const Case& setup) {
  if (!setup.grids.times.empty()) return setup.grids.times;
  std::vector<double> times;
  const double h = (setup.grids.t_end - setup.grids.t_begin) / static_cast<double>(setup.steps);
  for (std::int64_t i = 0; i <= setup.steps; ++i) times.push_back(setup.grids.t_begin + h * static_cast<double>(i));
  times.back() = setup.grids.t_end;
  return times;
}

void collect(const Solver& solver, const ModelProblem& problem, const Statistics& statistics, Found& found) {
  for (std::int64_t i = solver.points().begin; i < solver.points().end; ++i) {
    try {
      found.u[static_cast<std::size_t>(i)] = solver.solution(i).as<Vector>();
    } catch (const std::out_of_range&) {
    }
  }
  for (const auto& [i, u] : problem.shown) found.shown[static_cast<std::size_t>(i)] = u;
  found.residuals = statistics.residuals;
  found.steps += statistics.total_steps();
  found.converged = statistics.converged;
}

// `solves` times with the same solver; the last counts.
Found solve(const Model& model, const Case& setup, int solves = 1) {
  Found found;
  const auto points = static_cast<std::size_t>(setup.steps) + 1;
  std::mutex mutex;
  run_on_threads(setup.ranks, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(TimeHierarchy(setup.steps, setup.ranks, setup.grids), transport);
    for (int i = 0; i < solves; ++i) {
      ModelProblem problem(model, setup.announces_sizes);
      const Statistics statistics = solver.solve(problem, setup.options);
      if (i + 1 < solves) {
        solver.release();
        continue;
      }
      const std::lock_guard lock(mutex);
      if (found.u.empty()) found = {std::vector<Vector>(points), std::vector<Vector>(points), {}, 0, false};
      collect(solver, problem, statistics, found);
      for (const auto& [index, count] : problem.final_steps) EXPECT_EQ(count, 1) << "final step from " << index;
      if (setup.options.final_sweep == FinalSweep::kFC) {
        const std::int64_t targets = solver.points().size() - (solver.points().contains(0) ? 1 : 0);
        EXPECT_EQ(static_cast<std::int64_t>(problem.final_steps.size()), targets);
      }
    }
  });
  return found;
}

void expect_near(const Vector& got, const Vector& wanted, double tolerance, std::int64_t point) {
  ASSERT_EQ(got.size(), wanted.size()) << "point " << point;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << "point " << point;
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

Vector serial_end(const Model& model, const Case& setup) {
  const std::vector<double> t = times_of(setup);
  Vector u = model.initial;
  for (std::int64_t i = 0; i < setup.steps; ++i) {
    u = model.step(u, {0, i, i, i + 1, t[static_cast<std::size_t>(i)], t[static_cast<std::size_t>(i) + 1], true});
  }
  return u;
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

// WEFT_TEST_SEEDS asks for more of them.
unsigned seeds() {
  const char* wanted = std::getenv("WEFT_TEST_SEEDS");
  return wanted != nullptr ? static_cast<unsigned>(std::stoul(wanted)) : 250;
}

class RandomSolves : public testing::TestWithParam<Named> {};

TEST_P(RandomSolves, AreThoseOfThePlainImplementation) {
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
    if (HasFailure()) return;  // one seed's report is enough
  }
  EXPECT_GT(with_levels, static_cast<int>(seeds() / 3));
}

INSTANTIATE_TEST_SUITE_P(Models, RandomSolves,
                         testing::Values(Named{"pendulum", pendulum}, Named{"shape_shifter", shape_shifter},
                                         Named{"diffusion", diffusion}),
                         [](const auto& info) { return info.param.name; });

Case two_levels(std::int64_t steps, std::int64_t factor, int ranks) {
  Case setup;
  setup.steps = steps;
  setup.ranks = ranks;
  setup.grids.max_levels = 2;
  setup.grids.coarsening = factor;
  setup.grids.t_end = 0.1 * static_cast<double>(steps);
  setup.options.absolute_tolerance = 0;
  return setup;
}

TEST(Exactness, TwoLevelsAreSerialAfterAsManyCyclesAsCoarseSteps) {
  const Model model = pendulum();
  for (const auto& [steps, factor] : std::vector<std::pair<std::int64_t, std::int64_t>>{{30, 4}, {32, 8}, {17, 2}}) {
    for (const int ranks : {1, 3, 4, 7}) {
      Case setup = two_levels(steps, factor, ranks);
      setup.options.max_iterations = static_cast<int>((steps + factor - 1) / factor);
      expect_near(solve(model, setup).shown.back(), serial_end(model, setup), 1e-13, steps);
      // The first of these points is not exact before its turn comes: the test can fail.
      setup.options.max_iterations = 1;
      const Vector early = solve(model, setup).shown.back();
      EXPECT_GT(std::abs(early[0] - serial_end(model, setup)[0]), 1e-6);
    }
  }
}

TEST(Exactness, ManyLevelsConvergeToTheTolerance) {
  const Model model = diffusion();
  Case setup = two_levels(60, 2, 5);
  setup.grids.max_levels = 4;
  setup.grids.t_end = 3;
  setup.options.relaxations = 1;
  setup.options.max_iterations = 60;
  setup.options.absolute_tolerance = 1e-11;
  const Found found = solve(model, setup);
  EXPECT_TRUE(found.converged);
  EXPECT_LT(found.residuals.size(), 60U);
  expect_near(found.shown.back(), serial_end(model, setup), 1e-9, setup.steps);
}

TEST(Exactness, MoreRanksThanPoints) {
  const Model model = pendulum();
  for (const std::int64_t steps : {1, 2, 5, 9}) {
    Case setup = two_levels(steps, 2, 13);
    setup.options.max_iterations = 9;
    expect_near(solve(model, setup).shown.back(), serial_end(model, setup), 1e-13, steps);
  }
}

TEST(InitialGuess, OfAnEarlierSolveGoesOnWhereThatEnded) {
  const Model model = pendulum();
  Case setup = two_levels(40, 4, 3);
  setup.options.max_iterations = 2;
  setup.options.initial_guess = InitialGuess::kPrevious;
  setup.options.final_sweep = FinalSweep::kNone;
  const Found twice = solve(model, setup, 2);
  Case at_once = setup;
  at_once.options.max_iterations = 4;
  const Found once = solve(model, at_once);
  ASSERT_EQ(twice.residuals.size(), 2U);
  EXPECT_NEAR(twice.residuals[0].value(), once.residuals[2].value(), 1e-14);
  EXPECT_NEAR(twice.residuals[1].value(), once.residuals[3].value(), 1e-14);
}

TEST(InitialGuess, IsAskedOnceAtEachCPointButTheFirst) {
  const Model model = pendulum();
  std::mutex mutex;
  std::map<std::int64_t, int> asked;
  run_on_threads(3, [&](const std::shared_ptr<Transport>& transport) {
    HierarchyOptions grids;
    grids.coarsening = 4;
    Solver solver(TimeHierarchy(30, 3, grids), transport);
    ModelProblem problem(model);
    Options options;
    options.initial_guess = InitialGuess::kCallback;
    solver.solve(problem, options);
    const std::lock_guard lock(mutex);
    asked.insert(problem.guesses.begin(), problem.guesses.end());
  });
  EXPECT_EQ(asked, (std::map<std::int64_t, int>{{4, 1}, {8, 1}, {12, 1}, {16, 1}, {20, 1}, {24, 1}, {28, 1}}));
}

// Backward Euler of u' = -u^3: the residual of its equation is cheaper than a step, and not "step - u".
class ImplicitEquation : public TypedProblem<double> {
 public:
  double initial_value() override { return 1; }
  double zero_value(const Place& /*place*/) override { return 0; }
  double step(const double& u, const Step& step) override { return solve_for(u, 0, step); }
  State forced_step(const State& u, const State& rhs, const Step& step) override {
    return State::of(solve_for(u.as<double>(), rhs.as<double>(), step));
  }
  State residual(const State& before, const State& after, const Step& step) override {
    const double u = after.as<double>();
    return State::of(before.as<double>() - u - (step.t_stop - step.t_start) * u * u * u);
  }

 private:
  static double solve_for(double before, double rhs, const Step& step) {
    const double h = step.t_stop - step.t_start;
    double u = before;
    for (int i = 0; i < 50; ++i) u -= (u - before + h * u * u * u - rhs) / (1 + 3 * h * u * u);
    return u;
  }
};

TEST(UserResidual, GivesTheSerialSolution) {
  ImplicitEquation serial;
  const TimeHierarchy grid(24, 1);
  double expected = 1;
  for (std::int64_t i = 0; i < 24; ++i) expected = serial.step(expected, grid.step(0, i));
  run_on_threads(4, [&](const std::shared_ptr<Transport>& transport) {
    HierarchyOptions grids;
    grids.coarsening = 2;
    grids.max_levels = 3;
    Solver solver(TimeHierarchy(24, 4, grids), transport);
    ImplicitEquation problem;
    Options options;
    options.max_iterations = 30;
    options.absolute_tolerance = 1e-10;
    options.relaxations = 1;
    const Statistics statistics = solver.solve(problem, options);
    EXPECT_TRUE(statistics.converged);
    EXPECT_LT(statistics.iterations, 12);
    if (!solver.points().contains(24)) return;
    EXPECT_NEAR(solver.solution(24).as<double>(), expected, 1e-11);
  });
}

TEST(Divergence, NaNEndsTheIterationsAndIsReported) {
  Model model = pendulum();
  model.step = [inner = model.step](const Vector& u, const Step& step) {
    return step.level == 0 && step.index == 11 ? Vector{NAN, NAN} : inner(u, step);
  };
  for (const auto norm : {TemporalNorm::kOne, TemporalNorm::kTwo, TemporalNorm::kInfinity}) {
    Case setup = two_levels(24, 4, 3);
    setup.options.temporal_norm = norm;
    const Found found = solve(model, setup);
    ASSERT_EQ(found.residuals.size(), 1U);
    EXPECT_TRUE(std::isnan(found.residuals[0].value()));
    EXPECT_FALSE(found.converged);
    EXPECT_TRUE(std::isnan(found.shown.back()[0]));
    EXPECT_FALSE(std::isnan(found.shown[11][0]));
  }
}

TEST(LeftValue, IsWhatTheFinalSweepStepsFrom) {
  const Model model = pendulum();
  for (const auto& offsets : {std::vector<std::int64_t>{0, 8, 13, 13, 21}, {0, 9, 9, 17, 21}}) {
    for (const int levels : {1, 2}) {
      run_on_threads(4, [&](const std::shared_ptr<Transport>& transport) {
        HierarchyOptions grids;
        grids.coarsening = 4;
        grids.offsets = offsets;
        grids.max_levels = levels;
        Solver solver(TimeHierarchy(20, 4, grids), transport);
        ModelProblem problem(model);
        Options options;
        options.max_iterations = 1;
        solver.solve(problem, options);
        const partition::Range mine = solver.points();
        const State left = solver.left_value();
        ASSERT_EQ(static_cast<bool>(left), !mine.empty() && mine.begin > 0);
        if (!left) return;
        const Step step = solver.hierarchy().step(0, mine.begin - 1);
        EXPECT_EQ(model.step(left.as<Vector>(), step), solver.solution(mine.begin).as<Vector>());
        EXPECT_THROW(static_cast<void>(solver.solution(mine.begin - 1)), std::out_of_range);
        solver.release();
        EXPECT_FALSE(solver.left_value());
        EXPECT_THROW(static_cast<void>(solver.solution(mine.begin)), std::out_of_range);
      });
    }
  }
}

TEST(Solution, OfAnEarlierSolveDoesNotShineThrough) {
  const Model model = pendulum();
  for (const int levels : {1, 2}) {
    run_on_threads(2, [&](const std::shared_ptr<Transport>& transport) {
      HierarchyOptions grids;
      grids.coarsening = 4;
      grids.max_levels = levels;
      Solver solver(TimeHierarchy(20, 2, grids), transport);
      const std::int64_t f_point = solver.points().begin + 2;  // 2 and 13
      ModelProblem first(model), second(model), third(model);
      Options options;
      solver.solve(first, options);
      EXPECT_NO_THROW(static_cast<void>(solver.solution(f_point)));
      options.storage = Storage::kCPoints;
      solver.solve(second, options);
      EXPECT_THROW(static_cast<void>(solver.solution(f_point)), std::out_of_range);
      options.final_sweep = FinalSweep::kNone;
      solver.solve(third, options);
      EXPECT_TRUE(levels == 1 || !solver.left_value());
    });
  }
}

}  // namespace
}  // namespace weft::multigrid
