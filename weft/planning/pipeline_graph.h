// The tasks of a training step of a LayerParallel network with the pipeline.
#pragma once

#include <vector>

#include "weft/layer_parallel/plan.h"
#include "weft/planning/network_costs.h"
#include "weft/planning/task_graph.h"

namespace weft::planning {

// micro_batches: the costs of each micro-batch. The order of the work is that of LayerParallel::loss(). Throws
// std::invalid_argument if the costs do not fit the plan.
[[nodiscard]] TaskGraph pipeline_graph(const layer_parallel::Plan& plan,
                                       const std::vector<NetworkCosts>& micro_batches);

}  // namespace weft::planning
