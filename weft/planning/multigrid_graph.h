// The tasks of a training step of a LayerParallel network with multigrid.
#pragma once

#include "weft/layer_parallel/plan.h"
#include "weft/multigrid/options.h"
#include "weft/planning/network_costs.h"
#include "weft/planning/task_graph.h"

namespace weft::planning {

// Runs the solver itself for each rank, with steps that only record their costs, so that the graph is that of a real
// solve. The solves run max_iterations iterations. Throws std::invalid_argument if the costs do not fit the plan.
[[nodiscard]] TaskGraph multigrid_graph(const layer_parallel::Plan& plan, const multigrid::Options& forward,
                                        const multigrid::Options& backward, const NetworkCosts& costs);

}  // namespace weft::planning
