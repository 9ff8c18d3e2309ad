// The coarsest level: so few steps that they are taken one after the other, from rank to rank.
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// Solves the coarsest level and corrects the next finer one; only relaxes it where the options say so.
void solve_coarsest(Solve& solve);

// The whole problem where there is one level only: a plain loop with Step::final set.
void solve_serially(Solve& solve);

}  // namespace weft::multigrid
