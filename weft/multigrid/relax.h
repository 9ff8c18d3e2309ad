// F- and C-relaxation: sweeps over a level that step from each C-point through the F-points behind it.
#pragma once

#include <functional>

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// What a sweep does besides computing F-points.
struct Visitor {
  // At each C-point but 0, with the value that the step into it starts from. Absent: C-points are left alone, and only
  // intervals that a border cuts need a message.
  std::function<void(std::int64_t index, const State& before)> c_point;
  // At each F-point, with its new value.
  std::function<void(std::int64_t index, const State& u)> f_point;
};

// Steps through the intervals of this rank, the last one first: what the next rank waits for leaves as early as it can,
// and what comes from the rank before is needed as late as can be. Going backwards also lets a visitor change a
// C-point: the interval that starts there is done already. Returns the value before this rank's first point if it came
// from another.
State sweep(Solve& solve, Level& level, bool final, const Visitor& visitor);

// `count` times F-relaxation and C-relaxation together. The F-relaxation that follows is left to whoever needs its
// result.
void relax(Solve& solve, Level& level, int count);

// The sweep after the last iteration, with Step::final set, that leaves the solution in the finest level.
void sweep_finally(Solve& solve);

}  // namespace weft::multigrid
