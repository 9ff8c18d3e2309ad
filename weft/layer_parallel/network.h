// LayerParallel: the layers of a network spread over ranks and evaluated at the same time, with right gradients.
//
// Forward and backward are solved by multigrid in time (weft/multigrid). With enough iterations the result is that of
// evaluating layer after layer; with fewer it is an approximation whose residual statistics() tells.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "weft/layer_parallel/ends.h"
#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/parameters.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/problems.h"
#include "weft/mpi/team.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/solver.h"

namespace weft::layer_parallel {

struct Options {
  double tf = 1;  // dt is tf / layers
  GridOptions forward_grid;
  GridOptions backward_grid;
  multigrid::Options forward;
  multigrid::Options backward;
  Ends ends = Ends::kRoot;
  Transfers transfers;                        // spatial coarsening; none by default
  std::function<Tensors(double time)> guess;  // for InitialGuess::kCallback of the forward solve
  bool keep_states = false;                   // states() after forward
};

struct Statistics {
  multigrid::Statistics forward;
  multigrid::Statistics backward;
};

class LayerParallel {
 public:
  // Collective. All layers of the network, in order, on every rank; a rank keeps those it needs.
  LayerParallel(const std::shared_ptr<mpi::Team>& comm, const std::vector<Layer>& layers, const Options& options);
  // Collective. Only the layers that Plan gives this rank, by number.
  LayerParallel(const std::shared_ptr<mpi::Team>& comm, std::int64_t count, std::map<std::int64_t, Layer> layers,
                std::vector<SharedParameter> shared, const Options& options);
  ~LayerParallel();
  LayerParallel(LayerParallel&&) noexcept;
  LayerParallel& operator=(LayerParallel&&) noexcept;
  LayerParallel(const LayerParallel&) = delete;
  LayerParallel& operator=(const LayerParallel&) = delete;

  // Collective. See Ends for who gives and gets what. `extras` are further tensors that the layers' functions use and
  // whose gradients are wanted; each rank gets what its own layers contribute. An exception in a layer of any rank is
  // thrown on all of them as multigrid::SolveError that names rank and layer; the next call works.
  // `prepare`, if given, is called before this pass evaluates any layer, forward and again backward.
  [[nodiscard]] Tensors forward(const Tensors& x, const Tensors& extras = {}, std::function<void()> prepare = nullptr);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const Tensors& extras = {});

  // The parameters of this rank's layers, each once: for this rank's optimiser.
  [[nodiscard]] const Tensors& parameters() const;
  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] const Options& options() const;
  // Takes effect with the next forward; all ranks must do the same. Not tf and not which layers a rank has to hold:
  // grids with more levels or other factors need a new object.
  void set_solvers(const multigrid::Options& forward, const multigrid::Options& backward);
  [[nodiscard]] const Statistics& statistics() const;
  // Point and state for each of this rank's points; after forward, with Options::keep_states.
  [[nodiscard]] std::vector<std::pair<std::int64_t, Tensors>> states() const;
  // Lets go of what keep_states keeps, before the next forward does.
  void release_states();
  // After a module got other parameter or buffer tensors than it had.
  void rebind(std::int64_t layer, Tensors parameters, Tensors buffers);

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;  // shared with the graphs of its passes
};

}  // namespace weft::layer_parallel
