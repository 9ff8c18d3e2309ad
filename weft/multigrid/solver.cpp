#include "weft/multigrid/solver.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weft/mpi/fingerprint.h"
#include "weft/mpi/waiter.h"
#include "weft/multigrid/coarsest.h"
#include "weft/multigrid/cycle.h"
#include "weft/multigrid/failure.h"
#include "weft/multigrid/guess.h"
#include "weft/multigrid/mpi_transport.h"
#include "weft/multigrid/relax.h"
#include "weft/multigrid/residual.h"

namespace weft::multigrid {

struct Solver::Implementation {
  TimeHierarchy hierarchy;
  std::shared_ptr<Transport> transport;
  std::vector<Level> levels;
  State left_value;
  bool started = false;      // the C-points hold the values of an earlier solve
  bool keeps_start = false;  // the next solve starts from the C-points

  void begin(const Options& options) const;
  void run(Solve& solve);
  void iterate(Solve& solve);
  void iterate_once(Solve& solve, bool skip_downcycle);
  void reduce_last_change(Solve& solve);
  void clear(bool keep_c_points) noexcept;
};

namespace {

// The first residual; an iteration that skips the way down has no residual.
double first_residual(const Statistics& statistics) {
  for (const auto& residual : statistics.residuals) {
    if (residual) return *residual;
  }
  return 0;
}

// Whether the iterations are done; sets `converged`. A residual of zero converged with any tolerance, but only a
// tolerance ends the iterations, as in XBraid.
bool is_done(const Options& options, Statistics& statistics) {
  const std::optional<double>& residual = statistics.residuals.back();
  if (!residual) return false;
  const bool small =
      *residual < options.absolute_tolerance || *residual < options.relative_tolerance * first_residual(statistics);
  statistics.converged = small || *residual == 0;
  return small || std::isnan(*residual);  // a NaN residual stays NaN
}

std::string describe(const TimeHierarchy& hierarchy, std::uint64_t options) {
  return "a solve of " + std::to_string(hierarchy.steps()) + " steps on " + std::to_string(hierarchy.levels()) +
         " levels (hierarchy " + std::to_string(hierarchy.signature()) + ", options " + std::to_string(options) + ")";
}

}  // namespace

// Collective. Checks that all ranks start the same solve before they communicate.
void Solver::Implementation::begin(const Options& options) const {
  std::string problem;
  try {
    validate(options);
  } catch (const std::invalid_argument& error) {
    problem = error.what();
  }
  const std::uint64_t chosen = signature(options);
  const std::uint64_t all = mpi::Fingerprint().add(hierarchy.signature()).add(chosen).value();
  if (!problem.empty() && transport->size() == 1) throw std::invalid_argument(problem);  // no other rank to inform
  transport->begin(all, !problem.empty(), problem.empty() ? describe(hierarchy, chosen) : problem);
}

void Solver::Implementation::iterate_once(Solve& solve, bool skip_downcycle) {
  const Options& options = solve.options;
  std::unique_ptr<PendingReduction> pending;
  CyclePlan plan{options.cycle, skip_downcycle, nullptr};
  if (options.compute_residual) {
    // The reduction overlaps with the rest of the cycle.
    plan.residual = [&](double part) {
      pending = transport->reduce(part, takes_maximum(options.temporal_norm), solve.evaluator.failed());
    };
  }
  cycle(solve, plan);
  Statistics& statistics = solve.evaluator.statistics();
  ++statistics.iterations;
  statistics.residuals.emplace_back();
  if (!pending) return;
  const ReductionResult reduction = pending->wait();
  if (reduction.failed) throw_failure(*transport, solve.evaluator);
  statistics.residuals.back() = multigrid::finish(options.temporal_norm, reduction.value);
}

void Solver::Implementation::iterate(Solve& solve) {
  const Options& options = solve.options;
  if (options.initial_guess == InitialGuess::kCoarseSolve) cycle(solve, {CycleKind::kV, true, nullptr});
  for (int iteration = 0; iteration < options.max_iterations; ++iteration) {
    iterate_once(solve, options.skip_downcycle && iteration == 0);
    if (is_done(options, solve.evaluator.statistics())) break;
  }
  // Free coarse levels first: the problem may allocate memory of its own in the final sweep.
  for (std::size_t number = 1; number < levels.size(); ++number) levels[number].clear();
  final_sweep(solve);
  if (options.measure_last_change && options.final_sweep == FinalSweep::kFC) reduce_last_change(solve);
}

void Solver::Implementation::reduce_last_change(Solve& solve) {
  const bool failed = solve.evaluator.failed();
  const auto changes = transport->reduce(solve.squared_change, takes_maximum(TemporalNorm::kTwo), failed);
  const auto norms = transport->reduce(solve.largest_norm, takes_maximum(TemporalNorm::kInfinity), failed);
  const double change = multigrid::finish(TemporalNorm::kTwo, changes->wait().value);
  const double norm = norms->wait().value;
  solve.evaluator.statistics().last_change = change == 0 ? 0 : change / norm;
}

void Solver::Implementation::run(Solve& solve) {
  set_initial_guess(solve, started);
  if (hierarchy.levels() == 1) {
    solve_serially(solve);
    solve.evaluator.statistics().iterations = 1;
    solve.evaluator.statistics().converged = true;
  } else {
    iterate(solve);
  }
  transport->finish();
  if (transport->end(solve.evaluator.failed())) throw_failure(*transport, solve.evaluator);
  left_value = std::move(solve.left_value);
}

void Solver::Implementation::clear(bool keep_c_points) noexcept {
  left_value.reset();
  for (Level& level : levels) {
    if (level.number() > 0 || !keep_c_points) {
      level.clear();
    } else {
      level.clear_f_points();
    }
  }
  started = started && keep_c_points;
}

Solver::Solver(TimeHierarchy hierarchy, std::shared_ptr<Transport> transport)
    : implementation_(new Implementation{std::move(hierarchy), std::move(transport), {}, {}, false, false}) {
  auto& [grids, ranks, levels, left, started, keeps] = *implementation_;
  if (ranks == nullptr) throw std::invalid_argument("multigrid: Solver: the transport must not be null");
  if (grids.ranks() != ranks->size()) {
    throw std::invalid_argument("multigrid: Solver: the hierarchy has " + std::to_string(grids.ranks()) +
                                " ranks, but the transport has " + std::to_string(ranks->size()));
  }
  for (int number = 0; number < grids.levels(); ++number) levels.emplace_back(grids, number, ranks->rank());
}

Solver::Solver(TimeHierarchy hierarchy, std::shared_ptr<Communicator> communicator)
    : Solver(std::move(hierarchy), std::make_shared<MpiTransport>(std::move(communicator))) {}

Solver::~Solver() = default;
Solver::Solver(Solver&&) noexcept = default;
Solver& Solver::operator=(Solver&&) noexcept = default;

Statistics Solver::solve(Problem& problem, const Options& options, std::source_location where) {
  Implementation& me = *implementation_;
  const mpi::OperationScope operation("multigrid solve", nullptr, where);
  me.begin(options);
  me.keeps_start = options.initial_guess == InitialGuess::kPrevious && me.hierarchy.levels() > 1;
  me.clear(me.keeps_start);
  ProblemEvaluator evaluator(problem, options, me.transport->rank(), me.hierarchy.levels());
  Boundary boundary(me.hierarchy, *me.transport, evaluator);
  Solve solve{me.hierarchy, options, me.levels, evaluator, boundary, {}};
  try {
    me.run(solve);
  } catch (const SolveError&) {
    me.clear(false);
    throw;
  } catch (const std::exception& error) {
    // The transport failed, not the problem: other ranks may still wait for this one.
    me.transport->abandon(error.what());
    me.clear(false);
    throw;
  } catch (...) {
    me.transport->abandon("an exception of unknown type");
    me.clear(false);
    throw;
  }
  me.started = true;
  return evaluator.statistics();
}

const TimeHierarchy& Solver::hierarchy() const noexcept { return implementation_->hierarchy; }

partition::Range Solver::points() const {
  return implementation_->hierarchy.points(0, implementation_->transport->rank());
}

State Solver::solution(std::int64_t fine_index) const {
  const Level& level = implementation_->levels.front();
  if (!level.owns(fine_index) || !level.u(fine_index)) {
    throw std::out_of_range("multigrid: this rank holds no value at fine point " + std::to_string(fine_index) +
                            "; it owns [" + std::to_string(level.begin()) + ", " + std::to_string(level.end()) +
                            "), Storage::kCPoints keeps no F-points, and release() drops all values");
  }
  return level.u(fine_index);
}

State Solver::left_value() const { return implementation_->left_value; }

void Solver::release() noexcept { implementation_->clear(implementation_->keeps_start); }

void Solver::clear() noexcept { implementation_->clear(false); }

}  // namespace weft::multigrid
