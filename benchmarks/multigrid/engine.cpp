// Overhead of the solver: a scalar problem with nearly free steps, compared with a plain loop of the same steps.
#include <chrono>
#include <string>

#include "benchmarks/timing.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/multigrid/problem/typed_problem.h"
#include "weft/multigrid/solver.h"

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

// The same steps through the same virtual function, in a loop.
void plain_loop(Problem& problem, const TimeHierarchy& hierarchy, std::int64_t steps) {
  State u = problem.initial();
  for (std::int64_t i = 0; i < steps; ++i) u = problem.step(u, hierarchy.step(0, i % kSteps));
}

void measure(const std::string& name, int levels, const Options& options,
             const std::shared_ptr<weft::Communicator>& communicator) {
  HierarchyOptions grids;
  grids.max_levels = levels;
  grids.coarsening = 4;
  Solver solver(TimeHierarchy(kSteps, communicator->size(), grids), communicator);
  Decay problem;
  const std::int64_t evaluations = solver.solve(problem, options).total_steps();
  const auto times =
      weft::benchmarks::compare({{"plain", [&] { plain_loop(problem, solver.hierarchy(), evaluations); }},
                                 {"solver", [&] { solver.solve(problem, options); }}},
                                20, 11, communicator->origin());
  if (communicator->rank() != 0) return;
  const double steps = static_cast<double>(evaluations);
  weft::benchmarks::report("multigrid/" + name + "/per_step/" + std::to_string(communicator->size()), times[1] / steps,
                           "plain loop", times[0] / steps);
}

// Steps that take long enough to hide the solver, compared with each rank's share of them without waiting.
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

void measure_waiting(const Options& options, const std::shared_ptr<weft::Communicator>& communicator) {
  HierarchyOptions grids;
  grids.max_levels = 3;
  grids.coarsening = 4;
  Solver solver(TimeHierarchy(256, communicator->size(), grids), communicator);
  Busy problem;
  std::int64_t evaluations = solver.solve(problem, options).total_steps();
  const auto times =
      weft::benchmarks::compare({{"solver", [&] { solver.solve(problem, options); }}}, 3, 11, communicator->origin());
  MPI_Allreduce(MPI_IN_PLACE, &evaluations, 1, MPI_INT64_T, MPI_SUM, communicator->origin().handle());
  if (communicator->rank() != 0) return;
  const double share =
      static_cast<double>(evaluations) * static_cast<double>(Busy::kWork.count()) / communicator->size();
  weft::benchmarks::report("multigrid/busy_steps/solve/" + std::to_string(communicator->size()), times[0],
                           "a rank's share of the steps", share);
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const auto communicator = weft::Communicator::over(weft::mpi::CommView::world(), "engine");
  Options options;
  options.max_iterations = 2;
  options.relaxations = 1;
  options.absolute_tolerance = 0;
  measure("serial", 1, options, communicator);
  measure("three_levels", 3, options, communicator);
  options.storage = Storage::kCPoints;
  options.compute_residual = false;
  options.skip_downcycle = true;
  measure("three_levels_skip_c_points", 3, options, communicator);
  measure_waiting(options, communicator);
  return 0;
}
