// check_problem(): a self-test for user-defined problems.
#pragma once

#include <string>

#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/problem/problem.h"

namespace weft::multigrid {

struct CheckReport {
  bool ok = true;
  std::string text;  // one line per property: "ok", or "FAIL" with the reason
};

// Local. Takes a few steps on every level and checks that combine() is linear, norm() is a norm, pack() and unpack()
// round-trip, steps are reproducible and do not modify their input, and coarsen() and refine() match the levels.
// initial() must work on this rank. The report includes exceptions that the problem throws.
[[nodiscard]] CheckReport check_problem(Problem& problem, const TimeHierarchy& hierarchy, double tolerance = 1e-10);

}  // namespace weft::multigrid
