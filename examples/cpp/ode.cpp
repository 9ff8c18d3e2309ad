// Solves a predator-prey system over 400 time units, all time steps at once: multigrid in time without a network.
//
//   mpirun -n 2 ode
//
// Prints the residual of each iteration and the difference from serial time stepping.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "weft/mpi/collectives.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/multigrid/problem/check.h"
#include "weft/multigrid/problem/typed_problem.h"
#include "weft/multigrid/solver.h"

namespace {

using namespace weft::multigrid;
using Vector = std::vector<double>;

constexpr std::int64_t kSteps = 8192;

// The Rosenzweig-MacArthur model: limited prey growth and a saturating predation rate.
class PredatorPrey : public TypedProblem<Vector> {
 public:
  Vector initial_value() override { return {0.6, 0.4}; }
  // Coarse levels take larger steps, which the method must be stable for.
  Vector step(const Vector& u, const Step& step) override {
    const double h = step.t_stop - step.t_start;
    const Vector a = rate(u), b = rate(moved(u, h / 2, a)), c = rate(moved(u, h / 2, b)), d = rate(moved(u, h, c));
    Vector next(u);
    for (std::size_t i = 0; i < next.size(); ++i) next[i] += h / 6 * (a[i] + 2 * b[i] + 2 * c[i] + d[i]);
    return next;
  }
  // Both ends know the size of a message, which saves a second message.
  std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override { return 2 * sizeof(double); }

 private:
  static Vector rate(const Vector& u) {
    const double eaten = u[0] * u[1] / (u[0] + 0.7);
    return {u[0] * (1 - u[0]) - eaten, 0.8 * eaten - 0.25 * u[1]};
  }
  static Vector moved(const Vector& u, double h, const Vector& direction) {
    return {u[0] + h * direction[0], u[1] + h * direction[1]};
  }
};

Vector one_by_one(PredatorPrey& problem, const TimeHierarchy& hierarchy) {
  Vector u = problem.initial_value();
  for (std::int64_t i = 0; i < kSteps; ++i) u = problem.step(u, hierarchy.step(0, i));
  return u;
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const auto communicator = weft::Communicator::world();
  HierarchyOptions grids;
  grids.max_levels = 3;
  grids.coarsening = 4;  // steps of 0.05, 0.2 and 0.8 time units
  grids.t_end = 400;
  Solver solver(TimeHierarchy(kSteps, communicator->size(), grids), communicator);
  PredatorPrey problem;
  const CheckReport report = check_problem(problem, solver.hierarchy());
  if (!report.ok) std::fputs(report.text.c_str(), stderr);

  Options options;
  options.max_iterations = 10;
  options.absolute_tolerance = 1e-9;
  options.relaxations = 1;
  options.skip_downcycle = true;  // the first iteration only solves the coarsest level
  const Statistics statistics = solver.solve(problem, options);

  // The last rank owns the last point.
  double error = 0;
  if (solver.points().contains(kSteps)) {
    const Vector expected = one_by_one(problem, solver.hierarchy());
    const auto& found = solver.solution(kSteps).as<Vector>();
    error = std::hypot(found[0] - expected[0], found[1] - expected[1]);
  }
  weft::mpi::all_reduce(&error, &error, 1, weft::mpi::Datatype::kFloat64, weft::mpi::ReduceOp::kMax,
                        communicator->origin());
  if (communicator->rank() == 0) {
    for (std::size_t i = 0; i < statistics.residuals.size(); ++i) {
      if (statistics.residuals[i]) std::printf("iteration %zu: residual %.3e\n", i, *statistics.residuals[i]);
    }
    std::printf("%d ranks, %d levels: %d iterations, error %.1e\n", communicator->size(), solver.hierarchy().levels(),
                statistics.iterations, error);
  }
  return report.ok && statistics.converged && error < 1e-8 ? EXIT_SUCCESS : EXIT_FAILURE;
}
