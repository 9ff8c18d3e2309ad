// V- and F-cycles: the order in which the levels are visited.
#pragma once

#include <functional>

#include "weft/multigrid/solve.h"

namespace weft::multigrid {

struct CyclePlan {
  CycleKind kind = CycleKind::kV;
  bool skip_downcycle = false;
  // Called with this rank's part of the residual norm as soon as it is known. If empty, no norm is computed.
  std::function<void(double part)> residual;
};

// Runs one iteration.
void cycle(Solve& solve, const CyclePlan& plan);

}  // namespace weft::multigrid
