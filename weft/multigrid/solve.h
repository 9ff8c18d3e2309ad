// Solve: the state of a running solve, shared by the parts of the algorithm.
#pragma once

#include <vector>

#include "weft/multigrid/boundary.h"
#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/level.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/problem/problem_evaluator.h"

namespace weft::multigrid {

struct Solve {
  const TimeHierarchy& hierarchy;
  const Options& options;
  std::vector<Level>& levels;
  ProblemEvaluator& evaluator;
  Boundary& boundary;
  State left_value;  // the value before this rank's first fine point in the final sweep
  // This rank's C-points in the final sweep, with Options::measure_last_change.
  double squared_change = 0;
  double largest_norm = 0;

  [[nodiscard]] Level& level(int number) { return levels[static_cast<std::size_t>(number)]; }
};

}  // namespace weft::multigrid
