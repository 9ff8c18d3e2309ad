// The way up: what a level's values have changed corrects the C-points of the next finer one.
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// u of the finer level += refine(u - v) at the point that `index` of `coarse` lies on.
void correct_finer(Solve& solve, Level& coarse, std::int64_t index, const State& u);

// F-relaxes a level and corrects the next finer one with all of its points.
void interpolate_to_finer(Solve& solve, int coarse);

}  // namespace weft::multigrid
