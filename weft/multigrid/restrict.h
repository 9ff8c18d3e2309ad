// Restriction, the way down: the residual at the C-points becomes the right-hand side of the coarser level (FAS).
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// F-relaxes a level and sets up the next coarser one. There, u and v become the values of the C-points, and the
// right-hand side becomes
//   fine residual + v - step(v before),
// so that the fine solution also solves the coarse equation. With `with_norm`, returns this rank's part of the residual
// norm (see accumulate).
[[nodiscard]] double restrict_to_coarser(Solve& solve, int fine, bool with_norm);

// Copies the C-points to the coarser levels without right-hand sides, for a first cycle that skips the way down.
void inject_to_coarsest(Solve& solve);

}  // namespace weft::multigrid
