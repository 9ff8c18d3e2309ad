#include "weft/planning/pipeline_graph.h"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "weft/layer_parallel/pipeline_schedule.h"

namespace weft::planning {
namespace {

using layer_parallel::PipelineAction;
using layer_parallel::Plan;
using Kind = PipelineAction::Kind;

enum Channel : int { kStates, kOutputs, kOutputGradients, kGradients };

double seconds_of(const Plan& plan, int rank, const NetworkCosts& costs, double LayerCosts::* member) {
  double sum = 0;
  const partition::Range own = plan.layers_of(rank);
  for (std::int64_t layer = own.begin; layer < own.end; ++layer)
    sum += costs.layers[static_cast<std::size_t>(layer)].*member;
  return sum;
}

// Follows Pipeline::execute().
void add(Tasks& tasks, const Plan& plan, int rank, const PipelineAction& action, const NetworkCosts& costs) {
  const int last = plan.last_rank();
  const std::int64_t bytes = costs.state_bytes;
  switch (action.kind) {
    case Kind::kForward:
      if (rank > 0) receive(tasks, rank - 1, kStates);
      compute(tasks, seconds_of(plan, rank, costs, &LayerCosts::recorded));
      if (rank != last) {
        send(tasks, rank + 1, kStates, bytes);
      } else if (rank > 0) {
        send(tasks, 0, kOutputs, bytes);
      }
      return;
    case Kind::kLoss:
      if (last != 0) receive(tasks, last, kOutputs);
      compute(tasks, costs.loss);
      if (last != 0) send(tasks, last, kOutputGradients, bytes);
      return;
    case Kind::kBackward:
      if (rank != last) receive(tasks, rank + 1, kGradients);
      if (rank == last && rank > 0) receive(tasks, 0, kOutputGradients);
      compute(tasks, seconds_of(plan, rank, costs, &LayerCosts::weighted_adjoint));
      if (rank > 0) send(tasks, rank - 1, kGradients, bytes);
      return;
    case Kind::kOutput:
    case Kind::kGradient:
      return;  // not in this schedule
  }
}

}  // namespace

TaskGraph pipeline_graph(const Plan& plan, const std::vector<NetworkCosts>& micro_batches) {
  for (const NetworkCosts& costs : micro_batches) {
    if (static_cast<std::int64_t>(costs.layers.size()) != plan.layers()) {
      throw std::invalid_argument("weft: plan: expected the costs of " + std::to_string(plan.layers()) +
                                  " layers, got those of " + std::to_string(costs.layers.size()));
    }
  }
  TaskGraph graph(static_cast<std::size_t>(plan.ranks()));
  const auto count = static_cast<std::int64_t>(micro_batches.size());
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    Tasks& tasks = graph[static_cast<std::size_t>(rank)];
    if (count > 0) compute(tasks, micro_batches.front().fixed);
    synchronize(tasks);  // the agreement on the pass
    if (rank <= plan.last_rank()) {
      for (const PipelineAction& action : layer_parallel::one_forward_one_backward(rank, plan.last_rank() + 1, count)) {
        add(tasks, plan, rank, action, micro_batches[static_cast<std::size_t>(action.micro_batch)]);
      }
    }
    synchronize(tasks);  // the end of the pass
    synchronize(tasks);  // random numbers
  }
  return graph;
}

}  // namespace weft::planning
