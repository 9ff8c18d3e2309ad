#include "weft/multigrid/guess.h"

#include <memory>

namespace weft::multigrid {
namespace {

// Passes the initial value from rank to rank along the finest level.
State relay_initial(Solve& solve, Level& level) {
  if (level.empty()) return {};
  const State u = level.before() ? solve.boundary.receive(level, *solve.boundary.post_receive(level)) : level.u(0);
  if (level.after()) solve.boundary.send(level, u);
  return u;
}

// If the first cycle starts by solving the coarsest level, it reads only the first value. The problem then needs no
// zero().
bool reads_guess(const Options& options) {
  if (options.relax_coarsest_only) return true;
  if (options.initial_guess == InitialGuess::kCoarseSolve) return false;
  return !options.skip_downcycle || options.max_iterations == 0;
}

State guess_at(Solve& solve, const State& constant, const Place& place) {
  switch (solve.options.initial_guess) {
    case InitialGuess::kConstant:
      return constant;
    case InitialGuess::kCallback:
      return solve.evaluator.guess(place);
    default:
      return reads_guess(solve.options) ? solve.evaluator.zero(place) : State();
  }
}

}  // namespace

void set_initial_guess(Solve& solve, bool started) {
  Level& level = solve.level(0);
  const InitialGuess kind = solve.options.initial_guess;
  if (level.owns(0)) level.u(0) = solve.evaluator.initial(solve.hierarchy.place(0, 0));
  if (solve.hierarchy.levels() == 1 || (kind == InitialGuess::kPrevious && started)) return;
  const State constant = kind == InitialGuess::kConstant ? relay_initial(solve, level) : State();
  for (std::int64_t index = level.first_target(); index < level.end(); ++index) {
    const bool c_point = level.is_c_point(index);
    level.u(index) = c_point ? guess_at(solve, constant, solve.hierarchy.place(0, index)) : State();
  }
}

}  // namespace weft::multigrid
