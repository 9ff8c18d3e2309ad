// Sets the initial guess of a solve.
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// Sets the initial value and the C-points of the finest level. `started` is true if they hold the values of an earlier
// solve.
void set_initial_guess(Solve& solve, bool started);

}  // namespace weft::multigrid
