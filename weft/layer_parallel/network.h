// LayerParallel: distributes the layers of a network over ranks and evaluates them concurrently.
//
// Multigrid in time (weft/multigrid) solves forward and backward. With enough iterations the result equals that of a
// sequential evaluation; with fewer it is an approximation, and statistics() reports its residual.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/loss_gradient.h"
#include "weft/layer_parallel/parameters.h"
#include "weft/layer_parallel/pass_functions.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/problems.h"
#include "weft/mpi/communicator.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/solver.h"

namespace weft::layer_parallel {

enum class SolverKind : std::int8_t {
  kMultigrid,  // all ranks work on the whole batch at once; iterative
  kPipeline,   // the ranks work on different micro-batches; exact
};

struct Options {
  double tf = 1;  // final time; dt is tf / layers
  SolverKind solver = SolverKind::kMultigrid;
  // For the pipeline, which divides the first dimension of the input: the number of micro-batches, or 0 for four per
  // rank. The other options of solves and grids do not apply to it.
  std::int64_t micro_batches = 0;
  GridOptions forward_grid;
  GridOptions backward_grid;
  // Always with Options::measure_last_change. If the shape of the state changes along the network, a coarse solve
  // replaces a constant initial guess.
  multigrid::Options forward{.initial_guess = multigrid::InitialGuess::kConstant};
  multigrid::Options backward{.initial_guess = multigrid::InitialGuess::kConstant};
  // False: rank 0 holds the input and output; other ranks pass no input, get zeros, and take no part in the gradients
  // of either. True: every rank passes the same input, gets the output and computes the same loss; the loss counts
  // once in the gradients.
  bool replicated = false;
  Transfers transfers;                        // spatial coarsening; default: none
  std::function<Tensors(double time)> guess;  // for InitialGuess::kCallback of the forward solve
  // The coarse steps of the backward solve use the states after the last sweep, as in torchbraid, instead of the states
  // that the last sweep started from. Costs an evaluation per coarse step; the converged gradients are the same.
  bool relinearize = false;
  bool keep_states = false;  // keep the states of forward for states()
  std::vector<Form> forms;   // forms of all layers; the ranks compare them
};

// A loss with the gradients of all tensors that it depends on. loss_gradients() creates it; record() attaches the
// gradients to a graph.
struct DifferentiatedLoss {
  at::Tensor loss;
  Tensors inputs;     // this rank's input, parameters, extra tensors and leaves of the loss function
  Tensors gradients;  // of `inputs`; some may be undefined
  std::size_t first_parameter = 0;
  std::size_t parameters = 0;
};

struct Statistics {
  multigrid::Statistics forward;
  multigrid::Statistics backward;
};

class LayerParallel {
 public:
  // Collective. layers: all layers of the network in order, on every rank; a rank keeps those it needs.
  // Throws mpi::Disagreement on all ranks if the networks differ or one rank's arguments are invalid.
  LayerParallel(const std::shared_ptr<Communicator>& comm, const std::vector<Layer>& layers, const Options& options);
  // Collective. count: the number of layers of the network. layers: those that Plan assigns to this rank, by number.
  // shared: this rank's copies of parameters that layers of several ranks use.
  LayerParallel(const std::shared_ptr<Communicator>& comm, std::int64_t count, std::map<std::int64_t, Layer> layers,
                SharedCopies shared, const Options& options);
  ~LayerParallel();
  LayerParallel(LayerParallel&&) noexcept;
  LayerParallel& operator=(LayerParallel&&) noexcept;
  LayerParallel(const LayerParallel&) = delete;
  LayerParallel& operator=(const LayerParallel&) = delete;

  // Collective. Evaluates the network; see Options::replicated for the ranks that pass input and get output.
  // extras: further tensors that the layers use and that need gradients; each rank gets the contribution of its layers.
  // Throws multigrid::SolveError or PipelineError on all ranks, with rank and layer, if a layer throws; the network
  // stays usable.
  [[nodiscard]] Tensors forward(const Tensors& x, const Tensors& extras = {}, PassFunctions functions = {});
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const Tensors& extras = {});
  // Collective; without Options::replicated. Evaluates the network with the pipeline, whatever its solver is. Returns
  // the sum of function(output, rows) over the micro-batches on rank 0, which alone calls the function, and zero on
  // other ranks. rows: those of the micro-batch in the batch. If gradients are on, it computes them too, in 1F1B order;
  // backward() of the result scales and accumulates them. Tensors that the function uses must be leaves of the graph,
  // or need no gradients.
  [[nodiscard]] at::Tensor loss(const Tensors& x, const LossFunction& function, const Tensors& extras = {},
                                PassFunctions functions = {});

  // Collective. Computes the loss and its gradients with either solver, and records no graph. The pipeline uses one
  // micro-batch, so that both solvers apply the same batch normalisation and dropout. A network with
  // SolverKind::kPipeline has no other solver. The pipeline neither changes the statistics of a multigrid network nor
  // its initial guesses.
  [[nodiscard]] DifferentiatedLoss loss_gradients(const Tensors& x, const LossFunction& function, SolverKind solver,
                                                  const Tensors& extras = {}, PassFunctions functions = {});
  // All ranks must call it. Returns the loss; its backward() scales and accumulates the gradients, as that of loss().
  [[nodiscard]] at::Tensor record(DifferentiatedLoss loss);

  // The parameters of this rank's layers, each once, for this rank's optimizer.
  [[nodiscard]] const Tensors& parameters() const;
  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] const Communicator& communicator() const;
  [[nodiscard]] const Options& options() const;
  // Replaces the solver options from the next forward on; all ranks must call it with the same options. Other levels or
  // coarsening factors require a new LayerParallel, because each rank then needs different layers.
  void set_solvers(const multigrid::Options& forward, const multigrid::Options& backward);
  [[nodiscard]] const Statistics& statistics() const;
  // The number and state of each of this rank's points. Requires Options::keep_states and a call of forward().
  [[nodiscard]] std::vector<std::pair<std::int64_t, Tensors>> states() const;
  // Frees the kept states before the next forward does.
  void release_states();
  // Replaces the parameter and buffer tensors of a layer.
  void rebind(std::int64_t layer, Tensors parameters, Tensors buffers);
  // Replaces this rank's copies of shared parameters.
  void rebind_shared(SharedCopies copies);

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;  // shared with the autograd graphs of its passes
};

}  // namespace weft::layer_parallel
