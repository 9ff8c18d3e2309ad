// A self-test that users run on a problem of their own before they trust a solve.
#pragma once

#include <string>

#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/problem.h"

namespace weft::multigrid {

struct CheckReport {
  bool ok = true;
  std::string text;  // a line for each property: "ok" or what was expected and what came
};

// Takes a few steps on every level of the hierarchy and checks that combine is linear, the norm is one, pack and unpack
// round-trip, steps repeat and keep their input, and coarsen and refine fit the levels. Local: needs no other rank, but
// initial() must answer on this one. Exceptions of the problem become lines of the report.
[[nodiscard]] CheckReport check_problem(Problem& problem, const TimeHierarchy& hierarchy, double tolerance = 1e-10);

}  // namespace weft::multigrid
