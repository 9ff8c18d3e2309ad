#include "weft/multigrid/cycle.h"

#include "weft/multigrid/coarsest.h"
#include "weft/multigrid/interpolate.h"
#include "weft/multigrid/relax.h"
#include "weft/multigrid/restrict.h"

namespace weft::multigrid {
namespace {

void descend(Solve& solve, int number, const CyclePlan& plan) {
  relax(solve, solve.level(number), solve.options.relaxations[number]);
  const bool with_norm = number == 0 && plan.residual;
  const double part = restrict_to_coarser(solve, number, with_norm);
  if (with_norm) plan.residual(part);
}

void ascend(Solve& solve, int number) {
  if (number == solve.hierarchy.coarsest()) {
    solve_coarsest(solve);
  } else {
    interpolate_to_finer(solve, number);
  }
}

}  // namespace

void cycle(Solve& solve, const CyclePlan& plan) {
  const int coarsest = solve.hierarchy.coarsest();
  int number = 0;
  if (plan.skip_downcycle) {
    inject_to_coarsest(solve);
    number = coarsest;
  }
  // When an F-cycle reaches a level on the way up for the first time, it descends again from there.
  int first_visits_below = plan.kind == CycleKind::kF ? coarsest : 0;
  bool down = number < coarsest;
  do {
    if (down) {
      descend(solve, number++, plan);
      down = number < coarsest;
    } else {
      ascend(solve, number--);
      down = number > 0 && number < first_visits_below;
      if (down) --first_visits_below;
    }
  } while (number > 0);
}

}  // namespace weft::multigrid
