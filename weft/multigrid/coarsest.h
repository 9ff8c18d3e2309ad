// Solves the coarsest level serially: it has few steps, taken one after the other from rank to rank.
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// Solves the coarsest level, or only relaxes it with Options::relax_coarsest_only, and corrects the next finer one.
void solve_coarsest(Solve& solve);

// Solves a problem with a single level: a plain loop with Step::final set.
void solve_serially(Solve& solve);

}  // namespace weft::multigrid
