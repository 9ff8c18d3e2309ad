#include "weft/multigrid/guess.h"

#include <memory>

namespace weft::multigrid {
namespace {

// From rank to rank along the finest level.
State relay_initial(Solve& solve, Level& level) {
  if (level.empty()) return {};
  const State u = level.before() ? solve.boundary.take(level, *solve.boundary.expect(level)) : level.u(0);
  if (level.after()) solve.boundary.give(level, u);
  return u;
}

// Where the first cycle skips the way down, no value but the first is ever read: zero need not be made.
bool reads_guess(const Options& options) {
  return options.initial_guess != InitialGuess::kCoarseSolve && !options.skip_downcycle;
}

State guess_at(Solve& solve, InitialGuess kind, const State& constant, const Place& place) {
  switch (kind) {
    case InitialGuess::kConstant:
      return constant;
    case InitialGuess::kCallback:
      return solve.evaluator.guess(place);
    case InitialGuess::kZero:
    case InitialGuess::kPrevious:
      return reads_guess(solve.options) ? solve.evaluator.zero(place) : State();
    case InitialGuess::kCoarseSolve:
      break;
  }
  return {};
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
    level.u(index) = c_point ? guess_at(solve, kind, constant, solve.hierarchy.place(0, index)) : State();
  }
}

}  // namespace weft::multigrid
