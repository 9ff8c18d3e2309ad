// The implementation of LayerParallel: construction in network.cpp, the two solves in forward.cpp and adjoint.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/collective/autograd/node.h"
#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/layer_store.h"
#include "weft/layer_parallel/network.h"
#include "weft/layer_parallel/parameters.h"
#include "weft/layer_parallel/pipeline.h"
#include "weft/layer_parallel/problems.h"
#include "weft/layer_parallel/randomness.h"
#include "weft/layer_parallel/shapes.h"
#include "weft/multigrid/mpi_transport.h"
#include "weft/multigrid/solver.h"

namespace weft::layer_parallel {

using collective::OperationNode;
using torch::autograd::variable_list;

constexpr const char* kName = "layer_parallel";

// State that a forward pass saves for backward.
struct ForwardPass {
  Records records;
  LayerStates relinearized;  // with Options::relinearize: the states for the coarse steps of the backward solve
  PassSeed seed = 0;
  Shapes shapes;
  Tensors extras;
  PassFunctions functions;
  Transfers transfers;
  SolverKind solver = SolverKind::kMultigrid;
  std::int64_t requested_micro_batches = 0;  // see Options::micro_batches
  std::vector<MicroBatch> micro_batches;     // of the pipeline, with their records
  at::Device device{at::kCPU};
  bool used_random_numbers = false;
  bool released = false;
};

// The work of a forward pass besides its input.
struct PassRequest {
  SolverKind solver = SolverKind::kMultigrid;
  std::int64_t micro_batches = 0;
  LossFunction loss{};                      // if set, the pass returns the loss instead of the output
  DifferentiatedLoss* gradients = nullptr;  // if set, receives the loss, and the pass records no graph
};

struct LayerParallel::Implementation : std::enable_shared_from_this<LayerParallel::Implementation> {
  Implementation(const std::shared_ptr<Communicator>& comm, std::int64_t count, std::map<std::int64_t, Layer> given,
                 SharedCopies shared_copies, const Options& how);

  void index_parameters();
  [[nodiscard]] bool first() const { return communicator->rank() == 0; }
  [[nodiscard]] bool has_input() const { return first() || options.replicated; }
  [[nodiscard]] bool one_level() const { return plan.forward().levels() == 1 && plan.adjoint().levels() == 1; }

  // The request of LayerParallel::forward().
  [[nodiscard]] PassRequest output_request() const { return {options.solver, options.micro_batches}; }
  [[nodiscard]] Tensors forward(Tensors x, const Tensors& extras, PassFunctions functions, const PassRequest& request);
  [[nodiscard]] Tensors run_pass(const Tensors& x, ForwardPass& pass, bool recording, const PassRequest& request,
                                 Tensors& inputs, Tensors& gradients);
  [[nodiscard]] Tensors loop(const Tensors& x, const PassFunctions& functions);
  [[nodiscard]] Tensors loop_over_layers(Tensors x, const PassFunctions& functions, RandomScope& random);
  void learn_input(const Tensors& x, ForwardPass& pass);
  void find_shapes(const ForwardPass& pass);
  [[nodiscard]] at::Device device_for(const Tensors& x) const;
  [[nodiscard]] Codec codec(const ForwardPass& pass) const;
  [[nodiscard]] Tensors solve(const Tensors& x, ForwardPass& pass, bool recording);
  // Collective. Returns the inputs of this rank's layers after the last sweep, if they differ from the recorded ones.
  [[nodiscard]] LayerStates states_after_last_sweep(const ForwardPass& pass);
  // Returns the loss, and appends its leaves to `inputs` and the gradients of all inputs to `gradients`.
  [[nodiscard]] Tensors multigrid_loss(const Tensors& x, ForwardPass& pass, const LossFunction& loss, Tensors& inputs,
                                       Tensors& gradients);
  [[nodiscard]] Tensors deliver_output(Tensors y, ForwardPass& pass);
  // Collective. Returns the output of rank 0, and zeros of its shape on the other ranks.
  [[nodiscard]] Tensors zeros_like_output(Tensors y, const ForwardPass& pass);
  // Collective. Notes whether a layer of any rank used random numbers.
  void note_random_numbers(RandomScope& random, ForwardPass& pass);
  [[nodiscard]] variable_list adjoint(const std::shared_ptr<ForwardPass>& pass, variable_list&& gradients);
  // Returns the gradients of the input, the parameters and the extra tensors.
  [[nodiscard]] Tensors propagate_gradients(ForwardPass& pass, const Tensors& gradients, bool keep_graph);
  static void require_input(const Tensors& x, const PassRequest& request);
  void keep_point(std::int64_t point, const Tensors& state);
  // The two passes of the pipeline (pipeline_passes.cpp).
  [[nodiscard]] std::vector<MicroBatch> micro_batches_for(const StateLayout& input, std::int64_t requested) const;
  [[nodiscard]] PipelineWork pipeline_work(const Tensors& x, ForwardPass& pass, bool recording);
  [[nodiscard]] Tensors pipeline_forward(const Tensors& x, ForwardPass& pass, bool recording);
  [[nodiscard]] Tensors pipeline_backward(const Tensors& gradients, ForwardPass& pass, LayerEvaluator& evaluator,
                                          RandomScope& random, WeightGradients weights);
  // Returns the loss, and appends its leaves to `inputs` and the gradients of all inputs to `gradients`.
  [[nodiscard]] Tensors pipeline_loss(const Tensors& x, ForwardPass& pass, bool recording, const LossFunction& loss,
                                      Tensors& inputs, Tensors& gradients);
  // Records a loss whose gradients are known.
  void record_loss(const Tensors& inputs, Tensors& loss, Tensors gradients, bool on_tape);
  [[nodiscard]] Tensors gradient_at_end(const Tensors& gradients, const ForwardPass& pass);

  struct Adjoint {
    std::shared_ptr<Implementation> network;
    std::shared_ptr<ForwardPass> pass;
    variable_list operator()(OperationNode& /*node*/, variable_list&& gradients) const {
      return network->adjoint(pass, std::move(gradients));
    }
    void release() {
      pass->records.clear();
      pass->relinearized.clear();
      pass->micro_batches.clear();
      pass->functions = {};
      pass->transfers = {};
      pass->released = true;
    }
  };

  // Scales the gradients that loss() has computed.
  struct LossAdjoint {
    std::shared_ptr<Implementation> network;
    std::shared_ptr<Tensors> gradients;  // null after release
    variable_list operator()(OperationNode& /*node*/, variable_list&& scale) const;
    void release() { gradients.reset(); }
  };

  std::shared_ptr<Communicator> communicator;
  Options options;
  Plan plan;
  LayerStore layers;
  SharedParameters shared;
  multigrid::Solver forward_solver;
  multigrid::Solver adjoint_solver;
  multigrid::MpiTransport transport;  // of the pipeline
  ParameterIndex parameters;
  Statistics statistics;
  Shapes shapes;                           // for the layout of the last input; equal on all ranks
  std::map<std::int64_t, Tensors> points;  // states that the loop or the pipeline kept, by point
  bool shapes_known = false;
};

// Runs a solve and adds its direction to errors.
template <class Solve>
multigrid::Statistics run_solve(const multigrid::TimeHierarchy& grid, bool backward, Solve&& solve) {
  try {
    return solve();
  } catch (const multigrid::SolveError& error) {
    multigrid::Fault fault = error.fault();
    if (backward) {  // its ranks, points and steps count from the end
      fault.rank = grid.ranks() - 1 - fault.rank;
      fault.index = grid.steps(fault.level) - (fault.is_step() ? 1 : 0) - fault.index;
    }
    throw multigrid::SolveError(
        fault, backward ? " (in the backward solve of LayerParallel)" : " (in the forward solve of LayerParallel)");
  }
}

// The options of a solve of this pass.
[[nodiscard]] multigrid::Options options_for(multigrid::Options solve, const ForwardPass& pass);

}  // namespace weft::layer_parallel
