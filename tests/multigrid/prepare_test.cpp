// Steps that a problem prepares together: the solver takes exactly the steps that it announced, with the same result.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tests/multigrid/cases.h"

namespace weft::multigrid {
namespace {

// Computes steps in prepare(), and counts those that step() gets without preparation.
class PreparingProblem final : public ModelProblem {
 public:
  using ModelProblem::ModelProblem;

  bool prepares_steps() const override { return true; }
  void prepare(std::span<const PlannedStep> steps) override {
    EXPECT_TRUE(prepared_.empty()) << "the solver did not take all steps of the last call";
    for (const auto& [u, step] : steps) {
      EXPECT_EQ(step.level, steps[0].step.level);
      EXPECT_EQ(step.final, steps[0].step.final);
      const bool added = prepared_.emplace(Key{u.shared().get(), step.index}, TypedProblem::step(u, step)).second;
      EXPECT_TRUE(added) << "step " << step.index << " is planned twice";
    }
    together = std::max(together, steps.size());
  }
  State step(const State& u, const Step& step) override {
    const auto found = prepared_.find({u.shared().get(), step.index});
    if (found == prepared_.end()) {
      ++single;
      return TypedProblem::step(u, step);
    }
    return prepared_.extract(found).mapped();
  }
  using ModelProblem::step;

  std::size_t together = 0;  // the largest number of steps in a call
  std::int64_t single = 0;   // steps without preparation

 private:
  using Key = std::pair<const void*, std::int64_t>;
  std::map<Key, State> prepared_;
};

TEST(Prepare, GivesTheResultOfSingleSteps) {
  const Model model = pendulum();
  for (const int ranks : {1, 2, 3, 5}) {
    for (const int relaxations : {0, 1, 2}) {
      Case setup;
      setup.steps = 42;
      setup.ranks = ranks;
      setup.grids.max_levels = 3;
      setup.grids.coarsening = 3;
      setup.grids.t_end = 4.2;
      setup.options.max_iterations = 3;
      setup.options.absolute_tolerance = 0;
      setup.options.relaxations = relaxations;
      setup.options.final_sweep = FinalSweep::kFC;
      const Found expected = solve(model, setup);

      Found found{std::vector<Vector>(43), std::vector<Vector>(43), {}, 0, false};
      std::mutex mutex;
      run_on_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
        Solver solver(TimeHierarchy(setup.steps, ranks, setup.grids), transport);
        PreparingProblem problem(model);
        const Statistics statistics = solver.solve(problem, setup.options);
        const std::lock_guard lock(mutex);
        collect(solver, problem, statistics, found);
        EXPECT_GE(problem.together, static_cast<std::size_t>(42 / 3 / ranks - 1));
        EXPECT_LT(problem.single, statistics.total_steps());
      });
      for (std::size_t i = 0; i < found.shown.size(); ++i)
        EXPECT_EQ(found.shown[i], expected.shown[i]) << "point " << i;
      EXPECT_EQ(found.steps, expected.steps);
      EXPECT_EQ(found.residuals, expected.residuals);
    }
  }
}

}  // namespace
}  // namespace weft::multigrid
