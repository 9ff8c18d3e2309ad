#include "weft/multigrid/problem/problem.h"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace weft::multigrid {

void Problem::lacks_zero() {
  throw std::logic_error(
      "multigrid: InitialGuess::kZero needs Problem::zero(), which this problem does not override; override it or "
      "choose another initial guess");
}

void Problem::lacks_guess() {
  throw std::logic_error(
      "multigrid: InitialGuess::kCallback needs Problem::guess(), which this problem does not override; override it "
      "or choose another initial guess");
}

State Problem::forced_step(const State& u, const State& rhs, const Step& step) {
  return combine(1, this->step(u, step), 1, rhs);
}

State Problem::residual(const State& before, const State& after, const Step& step) {
  return combine(1, this->step(before, step), -1, after);
}

bool Problem::finite(const State& u) { return std::isfinite(norm(u)); }

}  // namespace weft::multigrid
