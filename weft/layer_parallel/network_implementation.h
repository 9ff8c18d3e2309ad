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
  RandomSource random;
  Shapes shapes;
  Tensors extras;
  std::function<void()> prepare;
  at::Device device{at::kCPU};
  bool released = false;
};

struct LayerParallel::Implementation : std::enable_shared_from_this<LayerParallel::Implementation> {
  Implementation(const std::shared_ptr<Communicator>& comm, std::int64_t count, std::map<std::int64_t, Layer> given,
                 std::vector<SharedParameter> shared_between, const Options& how);

  void index_parameters();
  [[nodiscard]] bool first() const { return communicator->rank() == 0; }
  [[nodiscard]] bool has_input() const { return first() || options.replicated; }
  [[nodiscard]] bool one_level() const { return plan.forward().levels() == 1 && plan.adjoint().levels() == 1; }

  [[nodiscard]] Tensors forward(const Tensors& x, const Tensors& extras, std::function<void()> prepare);
  [[nodiscard]] Tensors loop(Tensors x);
  void learn_input(const Tensors& x, bool known_to_all);
  void find_shapes(at::Device device);
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
      pass->released = true;
    }
  };

  std::shared_ptr<Communicator> communicator;
  Options options;
  Plan plan;
  LayerStore layers;
  std::vector<SharedParameter> shared;
  multigrid::Solver forward_solver;
  multigrid::Solver adjoint_solver;
  ParameterIndex parameters;
  Statistics statistics;
  Shapes shapes;                // for the layout of the last input; equal on all ranks
  std::vector<Tensors> looped;  // states kept by loop()
  std::uint64_t seed = 0;
  std::uint64_t passes = 0;
  bool shapes_known = false;
};

// Runs a solve and adds its direction to errors. The ranks of the adjoint solve count backward; errors name the ranks
// of the communicator.
template <class Solve>
multigrid::Statistics run_solve(const char* direction, bool backward, int ranks, Solve&& solve) {
  try {
    return solve();
  } catch (const multigrid::SolveError& error) {
    multigrid::Fault fault = error.fault();
    if (backward) fault.rank = ranks - 1 - fault.rank;
    throw multigrid::SolveError(fault, std::string(" (in the ") + direction + " solve of LayerParallel)");
  }
}

// Throws (TORCH_CHECK) if the initial guess is constant but the shape of the state changes.
void require_guess_fits(const multigrid::Options& solve, const Shapes& shapes);

}  // namespace weft::layer_parallel
