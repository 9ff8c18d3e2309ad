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
#include "weft/layer_parallel/problems.h"
#include "weft/layer_parallel/randomness.h"
#include "weft/layer_parallel/shapes.h"
#include "weft/multigrid/solver.h"

namespace weft::layer_parallel {

using collective::OperationNode;
using torch::autograd::variable_list;

constexpr const char* kName = "layer_parallel";

// State that a forward pass saves for backward.
struct ForwardPass {
  Records records;
  PassSeed seed = 0;
  Shapes shapes;
  Tensors extras;
  PassFunctions functions;
  Transfers transfers;
  at::Device device{at::kCPU};
  bool used_random_numbers = false;
  bool released = false;
};

struct LayerParallel::Implementation : std::enable_shared_from_this<LayerParallel::Implementation> {
  Implementation(const std::shared_ptr<Communicator>& comm, std::int64_t count, std::map<std::int64_t, Layer> given,
                 SharedCopies shared_copies, const Options& how);

  void index_parameters();
  [[nodiscard]] bool first() const { return communicator->rank() == 0; }
  [[nodiscard]] bool has_input() const { return first() || options.replicated; }
  [[nodiscard]] bool one_level() const { return plan.forward().levels() == 1 && plan.adjoint().levels() == 1; }

  [[nodiscard]] Tensors forward(Tensors x, const Tensors& extras, PassFunctions functions);
  [[nodiscard]] Tensors loop(Tensors x, const PassFunctions& functions);
  void learn_input(const Tensors& x, ForwardPass& pass);
  void find_shapes(const ForwardPass& pass);
  [[nodiscard]] at::Device device_for(const Tensors& x) const;
  [[nodiscard]] Codec codec(const ForwardPass& pass) const;
  [[nodiscard]] Tensors solve(const Tensors& x, ForwardPass& pass, bool recording);
  [[nodiscard]] Tensors deliver_output(Tensors y, ForwardPass& pass);
  [[nodiscard]] variable_list adjoint(const std::shared_ptr<ForwardPass>& pass, variable_list&& gradients);
  [[nodiscard]] Tensors gradient_at_end(const Tensors& gradients, const ForwardPass& pass);

  struct Adjoint {
    std::shared_ptr<Implementation> network;
    std::shared_ptr<ForwardPass> pass;
    variable_list operator()(OperationNode& /*node*/, variable_list&& gradients) const {
      return network->adjoint(pass, std::move(gradients));
    }
    void release() {
      pass->records.clear();
      pass->functions = {};
      pass->transfers = {};
      pass->released = true;
    }
  };

  std::shared_ptr<Communicator> communicator;
  Options options;
  Plan plan;
  LayerStore layers;
  SharedParameters shared;
  multigrid::Solver forward_solver;
  multigrid::Solver adjoint_solver;
  ParameterIndex parameters;
  Statistics statistics;
  Shapes shapes;                // for the layout of the last input; equal on all ranks
  std::vector<Tensors> looped;  // states kept by loop()
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
