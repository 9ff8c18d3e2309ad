// Options and statistics of multigrid solves as Python dictionaries, and multigrid over Python steps.
#pragma once

#include <pybind11/pybind11.h>

#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/statistics.h"

namespace weft::multigrid {

// From Solve.describe().
[[nodiscard]] Options solve_options(const pybind11::dict& description);
// From a dictionary with levels, cfactor and min_coarse.
[[nodiscard]] HierarchyOptions grid_options(const pybind11::dict& description);
// The arguments of SolveStatistics.
[[nodiscard]] pybind11::dict to_python(const Statistics& statistics);

void bind(pybind11::module_& m);

}  // namespace weft::multigrid
