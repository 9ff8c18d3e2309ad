#include "weft/multigrid/restrict.h"

#include <memory>
#include <utility>

#include "weft/multigrid/relax.h"
#include "weft/multigrid/residual.h"

namespace weft::multigrid {
namespace {

// The coarse level begins with the fine C-points; a C-point's owner owns the coarse point, so nothing travels.
void inject(Solve& solve, Level& fine, Level& coarse) {
  for (std::int64_t index = coarse.begin(); index < coarse.end(); ++index) {
    const Place place = solve.hierarchy.place(fine.number(), index * fine.factor());
    State u = solve.evaluator.coarsen(fine.u(place.index), place);
    coarse.rhs(index).reset();
    // F-points of the coarse level are computed before anybody reads them.
    coarse.u(index) = coarse.is_c_point(index) ? u : State();
    coarse.v(index) = std::move(u);
  }
}

// F-relaxation of the fine level; the residuals at its C-points are left in the coarse right-hand sides.
double take_residuals(Solve& solve, Level& fine, Level& coarse, bool with_norm) {
  double sum = 0;
  const auto at_c_point = [&](std::int64_t index, const State& before) {
    const Place place = solve.hierarchy.place(fine.number(), index);
    const Step step = solve.hierarchy.step(fine.number(), index - 1);
    const State missing = solve.evaluator.residual(before, fine.u(index), fine.rhs(index), step);
    if (with_norm) sum = accumulate(solve.options.temporal_norm, sum, solve.evaluator.norm(missing, place));
    coarse.rhs(index / fine.factor()) = solve.evaluator.coarsen(missing, place);
  };
  sweep(solve, fine, false, {at_c_point, nullptr});
  return sum;
}

// Takes away what the coarse step lacks to reproduce v. The first point last: it needs the value from the rank before.
void subtract_coarse_residuals(Solve& solve, Level& coarse, Incoming* incoming) {
  for (std::int64_t index = coarse.end() - 1; index >= coarse.first_target(); --index) {
    const State before = coarse.owns(index - 1) ? coarse.v(index - 1) : solve.boundary.take(coarse, *incoming);
    const State missing =
        solve.evaluator.residual(before, coarse.v(index), State(), solve.hierarchy.step(coarse.number(), index - 1));
    State& rhs = coarse.rhs(index);
    rhs = solve.evaluator.combine(1, std::move(rhs), -1, missing, solve.hierarchy.place(coarse.number(), index));
  }
}

}  // namespace

double restrict_to_coarser(Solve& solve, int number, bool with_norm) {
  Level& fine = solve.level(number);
  Level& coarse = solve.level(number + 1);
  inject(solve, fine, coarse);
  // The C-points are known before the sweep: their exchange hides behind it.
  const std::unique_ptr<Incoming> incoming = coarse.before() ? solve.boundary.expect(coarse) : nullptr;
  if (coarse.after()) solve.boundary.give(coarse, coarse.v(coarse.end() - 1));
  const double sum = take_residuals(solve, fine, coarse, with_norm);
  subtract_coarse_residuals(solve, coarse, incoming.get());
  return sum;
}

void inject_to_coarsest(Solve& solve) {
  for (int number = 0; number < solve.hierarchy.coarsest(); ++number) {
    inject(solve, solve.level(number), solve.level(number + 1));
  }
}

}  // namespace weft::multigrid
