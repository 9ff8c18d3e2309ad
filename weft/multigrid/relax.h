// F- and C-relaxation: sweeps over a level that step from each C-point through the F-points after it.
#pragma once

#include <functional>

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// Callbacks of a sweep, in addition to computing F-points.
struct Visitor {
  // Called at each C-point except 0, with the value that the step to it starts from. If empty, C-points keep their
  // values, and only intervals that span two ranks need a message.
  std::function<void(std::int64_t index, const State& before)> c_point;
  // Called at each F-point with its new value.
  std::function<void(std::int64_t index, const State& u)> f_point;
};

// Steps through the intervals of this rank from the last to the first. The next rank then receives its value as early
// as possible, and the value from the rank before is needed as late as possible. This order also lets a visitor change
// a C-point, because the interval that starts there is already done. Returns the value before this rank's first point
// if another rank sent it. If the problem prepares steps, intervals whose first value is known advance together.
State sweep(Solve& solve, Level& level, bool final, const Visitor& visitor);

// Runs F-relaxation and C-relaxation `count` times. Does not run the last F-relaxation: the next sweep does.
void relax(Solve& solve, Level& level, int count);

// Runs the sweep after the last iteration, with Step::final set, which stores the solution in the finest level.
void final_sweep(Solve& solve);

}  // namespace weft::multigrid
