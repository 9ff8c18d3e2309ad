// The way down: the residual at the C-points becomes the right-hand side of the next coarser level (FAS).
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// F-relaxes a level, and gives the next one its values u = v = the C-points here and its right-hand side
//   residual here + v - step(v before),
// with which the fine solution, if it were reached, would solve the coarse equation. Returns this rank's part of the
// norm of the residual (see accumulate) where `with_norm`.
[[nodiscard]] double restrict_to_coarser(Solve& solve, int fine, bool with_norm);

// The coarser levels get the C-points' values and no right-hand side: the first cycle where the way down is skipped.
void inject_to_coarsest(Solve& solve);

}  // namespace weft::multigrid
