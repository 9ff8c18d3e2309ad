#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "weft/layer_parallel/network_implementation.h"
#include "weft/layer_parallel/state_transfer.h"

namespace weft::layer_parallel {

// Returns the gradient at the end of the network on the rank that starts the adjoint solve.
Tensors LayerParallel::Implementation::gradient_at_end(const Tensors& gradients, const ForwardPass& pass) {
  if (options.replicated) return mean_over_ranks(gradients, *communicator);
  return send_state(gradients, 0, plan.last_rank(), codec(pass), *communicator);
}

variable_list LayerParallel::Implementation::adjoint(const std::shared_ptr<ForwardPass>& pass,
                                                     variable_list&& gradients) {
  TORCH_CHECK(!pass->released,
              "weft: the graph of this LayerParallel network was freed by an earlier backward; pass retain_graph=True "
              "to the first backward");
  TORCH_CHECK(!c10::GradMode::is_enabled(),
              "weft: LayerParallel does not support second derivatives (create_graph=True)");
  return propagate_gradients(*pass, gradients, torch::autograd::get_current_graph_task_keep_graph());
}

Tensors LayerParallel::Implementation::propagate_gradients(ForwardPass& pass, const Tensors& gradients,
                                                           bool keep_graph) {
  RandomScope random(pass.seed, pass.device);
  LayerEvaluator evaluator(layers, random, pass.functions);
  GradientSums sums(parameters, pass.extras.size());
  const Tensors& extras = pass.functions.leaves.empty() ? pass.extras : pass.functions.leaves;
  const auto collect = [&](std::int64_t layer, const Tensors& found) { sums.add(layer, found); };
  WeightGradients weights{&extras, keep_graph, collect};
  Tensors result;
  if (pass.solver == SolverKind::kPipeline) {
    result = pipeline_backward(gradients, pass, evaluator, random, std::move(weights));
  } else {
    AdjointProblem problem(plan, evaluator, codec(pass), pass.shapes, pass.transfers,
                           {gradient_at_end(gradients, pass), &pass.records, &pass.relinearized, std::move(weights)});
    const multigrid::Options how = options_for(options.backward, pass);
    statistics.backward = run_solve(plan.adjoint(), true, [&] { return adjoint_solver.solve(problem, how); });
    statistics.backward.steps = problem.evaluations();
    if (first()) result = adjoint_solver.solution(plan.layers()).as<Tensors>();
    adjoint_solver.release();
  }
  if (options.replicated) result = broadcast_state(std::move(result), 0, codec(pass), *communicator);
  shared.sum(parameters, sums.parameters, *communicator);
  if (pass.functions.solved) pass.functions.solved(true);
  result.insert(result.end(), sums.parameters.begin(), sums.parameters.end());
  result.insert(result.end(), sums.extras.begin(), sums.extras.end());
  return result;
}

}  // namespace weft::layer_parallel
