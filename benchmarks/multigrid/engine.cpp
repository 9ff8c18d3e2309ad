// What the solver itself costs: a scalar problem whose steps cost next to nothing, against a plain loop of the same
// steps.
#include <chrono>
#include <string>

#include "benchmarks/timing.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/team.h"
#include "weft/multigrid/solver.h"
#include "weft/multigrid/typed_problem.h"

namespace {

using namespace weft::multigrid;

constexpr std::int64_t kSteps = 4096;

class Decay : public TypedProblem<double> {
 public:
  double initial_value() override { return 1; }
  double zero_value(const Place& /*place*/) override { return 0; }
  double step(const double& u, const Step& step) override { return u / (1 + (step.t_stop - step.t_start)); }
  std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override { return sizeof(double); }
};

// The same steps through the same virtual function, one state after the other.
void plain_loop(Problem& problem, const TimeHierarchy& hierarchy, std::int64_t steps) {
  State u = problem.initial();
  for (std::int64_t i = 0; i < steps; ++i) u = problem.step(u, hierarchy.step(0, i % kSteps));
}

void measure(const std::string& name, int levels, const Options& options,
             const std::shared_ptr<weft::mpi::Team>& team) {
  HierarchyOptions grids;
  grids.max_levels = levels;
  grids.coarsening = 4;
  Solver solver(TimeHierarchy(kSteps, team->size(), grids), team);
  Decay problem;
  const std::int64_t evaluations = solver.solve(problem, options).total_steps();
  const auto times =
      weft::benchmarks::compare({{"plain", [&] { plain_loop(problem, solver.hierarchy(), evaluations); }},
                                 {"solver", [&] { solver.solve(problem, options); }}},
                                20, 11, team->origin());
  if (team->rank() != 0) return;
  const double steps = static_cast<double>(evaluations);
  weft::benchmarks::report("multigrid/" + name + "/per_step/" + std::to_string(team->size()), times[1] / steps,
                           "plain loop", times[0] / steps);
}

// Steps that take long enough to hide the engine, against each rank's share of them without any waiting.
class Busy : public Decay {
 public:
  double step(const double& u, const Step& step) override {
    const auto until = std::chrono::steady_clock::now() + kWork;
    while (std::chrono::steady_clock::now() < until) {
    }
    return Decay::step(u, step);
  }
  static constexpr std::chrono::microseconds kWork{50};
};

void measure_waiting(const Options& options, const std::shared_ptr<weft::mpi::Team>& team) {
  HierarchyOptions grids;
  grids.max_levels = 3;
  grids.coarsening = 4;
  Solver solver(TimeHierarchy(256, team->size(), grids), team);
  Busy problem;
  std::int64_t evaluations = solver.solve(problem, options).total_steps();
  const auto times =
      weft::benchmarks::compare({{"solver", [&] { solver.solve(problem, options); }}}, 3, 11, team->origin());
  MPI_Allreduce(MPI_IN_PLACE, &evaluations, 1, MPI_INT64_T, MPI_SUM, team->origin().handle());
  if (team->rank() != 0) return;
  const double share = static_cast<double>(evaluations) * static_cast<double>(Busy::kWork.count()) / team->size();
  weft::benchmarks::report("multigrid/busy_steps/solve/" + std::to_string(team->size()), times[0],
                           "a rank's share of the steps", share);
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const auto team = weft::mpi::Team::over(weft::mpi::CommunicatorView::world(), "engine");
  Options options;
  options.max_iterations = 2;
  options.relaxations = 1;
  options.absolute_tolerance = 0;
  measure("serial", 1, options, team);
  measure("three_levels", 3, options, team);
  options.storage = Storage::kCPoints;
  options.compute_residual = false;
  options.skip_downcycle = true;
  measure("three_levels_skip_c_points", 3, options, team);
  measure_waiting(options, team);
  return 0;
}
