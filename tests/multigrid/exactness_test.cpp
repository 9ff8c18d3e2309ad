// Properties of a solve on any grid: it reaches the serial result, continues from an earlier solve and reports NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "tests/multigrid/cases.h"

namespace weft::multigrid {
namespace {

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

TEST(Exactness, TwoLevelsReachTheSerialResultAfterOneCyclePerCoarseStep) {
  const Model model = pendulum();
  for (const auto& [steps, factor] : std::vector<std::pair<std::int64_t, std::int64_t>>{{30, 4}, {32, 8}, {17, 2}}) {
    for (const int ranks : {1, 3, 4, 7}) {
      Case setup = two_levels(steps, factor, ranks);
      setup.options.max_iterations = static_cast<int>((steps + factor - 1) / factor);
      expect_near(solve(model, setup).shown.back(), serial_end(model, setup), 1e-13, steps);
      // The first of these points is not exact before its cycle, which shows that the test can fail.
      setup.options.max_iterations = 1;
      const Vector early = solve(model, setup).shown.back();
      EXPECT_GT(std::abs(early[0] - serial_end(model, setup)[0]), 1e-6);
    }
  }
}

TEST(Exactness, SeveralLevelsConvergeToTheTolerance) {
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

// The next iteration starts with the F-relaxation of the final sweep, so its residual is the change of the C-points.
TEST(LastChange, IsTheResidualThatTheNextIterationWouldHave) {
  const Model model = pendulum();
  for (const int ranks : {1, 3, 5}) {
    Case setup = two_levels(40, 4, ranks);
    setup.options.max_iterations = 3;
    const double next = solve(model, setup).residuals.at(2).value();
    std::mutex mutex;
    double largest = 0;
    std::vector<double> changes;
    run_on_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
      Solver solver(TimeHierarchy(setup.steps, ranks, setup.grids), transport);
      ModelProblem problem(model);
      Options options = setup.options;
      options.max_iterations = 2;
      options.compute_residual = false;
      options.measure_last_change = true;
      const Statistics statistics = solver.solve(problem, options);
      const std::lock_guard lock(mutex);
      changes.push_back(statistics.last_change.value());
      const auto points = solver.points();
      for (auto point = points.begin; point < points.end; ++point) {
        if (point == 0 || point % 4 != 0) continue;
        const auto& u = solver.solution(point).as<Vector>();
        largest = std::max(largest, std::hypot(u[0], u[1]));
      }
    });
    for (const double change : changes) EXPECT_NEAR(change, next / largest, 1e-13);
  }
}

TEST(Convergence, AResidualOfZeroIsConvergedWithoutATolerance) {
  Model model = pendulum();
  model.step = [](const Vector& u, const Step& /*step*/) { return u; };
  Case setup = two_levels(16, 4, 2);
  setup.options.initial_guess = InitialGuess::kConstant;
  const Found found = solve(model, setup);
  EXPECT_TRUE(found.converged);
  EXPECT_EQ(found.residuals.back(), 0);
}

TEST(Exactness, SupportsMoreRanksThanPoints) {
  const Model model = pendulum();
  for (const std::int64_t steps : {1, 2, 5, 9}) {
    Case setup = two_levels(steps, 2, 13);
    setup.options.max_iterations = 9;
    expect_near(solve(model, setup).shown.back(), serial_end(model, setup), 1e-13, steps);
  }
}

TEST(InitialGuess, PreviousContinuesFromTheEarlierSolve) {
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

TEST(InitialGuess, CallbackIsCalledOnceAtEachCPointExceptTheFirst) {
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

// Backward Euler for u' = -u^3: the residual of its equation is cheaper than a step and differs from "step - u".
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

TEST(Divergence, NaNStopsTheIterationsAndIsReported) {
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

TEST(LeftValue, IsTheValueThatTheFinalSweepStartsFrom) {
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

TEST(Solution, ContainsNoValuesOfAnEarlierSolve) {
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
