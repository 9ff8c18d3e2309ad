// The values that a solve starts from.
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// Sets the initial value and the C-points of the finest level. `started` says that an earlier solve left its values
// there.
void set_initial_guess(Solve& solve, bool started);

}  // namespace weft::multigrid
