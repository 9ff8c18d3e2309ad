// Interpolation, the way up: the change of a level's values corrects the C-points of the next finer level.
#pragma once

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

// Adds refine(u - v) to u of the finer level, at the point that corresponds to point `index` of `coarse`.
void correct_finer(Solve& solve, Level& coarse, std::int64_t index, const State& u);

// F-relaxes a level and corrects the next finer one at all of its points.
void interpolate_to_finer(Solve& solve, int coarse);

}  // namespace weft::multigrid
