#include "weft/multigrid/cycle.h"

#include "weft/multigrid/coarsest.h"
#include "weft/multigrid/interpolate.h"
#include "weft/multigrid/relax.h"
#include "weft/multigrid/restrict.h"

namespace weft::multigrid {
namespace {

void go_down(Solve& solve, int number, const CyclePlan& plan) {
  relax(solve, solve.level(number), solve.options.relaxations[number]);
  const bool with_norm = number == 0 && plan.residual;
  const double part = restrict_to_coarser(solve, number, with_norm);
  if (with_norm) plan.residual(part);
}

void go_up(Solve& solve, int number) {
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
  // An F-cycle, when it first comes up to a level, goes down from there once more.
  int first_visits_below = plan.kind == CycleKind::kF ? coarsest : 0;
  bool down = number < coarsest;
  do {
    if (down) {
      go_down(solve, number++, plan);
      down = number < coarsest;
    } else {
      go_up(solve, number--);
      down = number > 0 && number < first_visits_below;
      if (down) --first_visits_below;
    }
  } while (number > 0);
}

}  // namespace weft::multigrid
