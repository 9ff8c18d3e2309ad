// Describes a test solve, runs it with threads as ranks and collects the results.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

#include "tests/multigrid/model.h"
#include "tests/multigrid/thread_transport.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {

struct Case {
  std::int64_t steps = 0;
  int ranks = 1;
  HierarchyOptions grids;
  Options options;
  bool announces_sizes = true;
};

// The combined results of all ranks.
struct Found {
  std::vector<Vector> u;      // solution at the fine points that the solver holds; empty at others
  std::vector<Vector> shown;  // arguments of access()
  std::vector<std::optional<double>> residuals;
  std::int64_t steps = 0;
  bool converged = false;
};

inline std::vector<double> times_of(const Case& setup) {
  if (!setup.grids.times.empty()) return setup.grids.times;
  std::vector<double> times;
  const double h = (setup.grids.t_end - setup.grids.t_begin) / static_cast<double>(setup.steps);
  for (std::int64_t i = 0; i <= setup.steps; ++i) times.push_back(setup.grids.t_begin + h * static_cast<double>(i));
  times.back() = setup.grids.t_end;
  return times;
}

inline void collect(const Solver& solver, const ModelProblem& problem, const Statistics& statistics, Found& found) {
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

// Solves `solves` times with the same solver and returns the last result.
inline Found solve(const Model& model, const Case& setup, int solves = 1) {
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

inline void expect_near(const Vector& got, const Vector& wanted, double tolerance, std::int64_t point) {
  ASSERT_EQ(got.size(), wanted.size()) << "point " << point;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << "point " << point;
}

inline Vector serial_end(const Model& model, const Case& setup) {
  const std::vector<double> t = times_of(setup);
  Vector u = model.initial;
  for (std::int64_t i = 0; i < setup.steps; ++i) {
    u = model.step(u, {0, i, i, i + 1, t[static_cast<std::size_t>(i)], t[static_cast<std::size_t>(i) + 1], true});
  }
  return u;
}

}  // namespace weft::multigrid
