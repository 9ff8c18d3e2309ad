// The network and its adjoint as time stepping problems for the multigrid solver.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/shapes.h"
#include "weft/layer_parallel/states.h"
#include "weft/multigrid/problem.h"

namespace weft::layer_parallel {

// Layers that a pass evaluated on its last sweep, by number, with their graphs.
using Records = std::map<std::int64_t, Recorded>;

// Spatial coarsening, where the user gives it: a state of level `level` for the next coarser one, and back.
struct Transfers {
  using Function = std::function<Tensors(const Tensors&, int level)>;
  Function coarsen;
  Function refine;
};

// Tensors as states: all that both directions have in common.
class TensorProblem : public multigrid::Problem {
 public:
  TensorProblem(const Plan& plan, Evaluator& evaluator, Codec codec, const Shapes& shapes, const Transfers& transfers)
      : plan_(plan), evaluator_(evaluator), shapes_(shapes), codec_(std::move(codec)), transfers_(transfers) {}

  // A coarse step from a state it was just taken from is not evaluated again: the residual of a coarse point and the
  // relaxation that follows it ask for the same ones, and so does an iteration after one that skipped the way down.
  multigrid::State step(const multigrid::State& u, const multigrid::Step& step) final;
  multigrid::State combine(double a, multigrid::State x, double b, multigrid::State y) override;
  double norm(const multigrid::State& u) override;
  bool finite(const multigrid::State& u) override;
  multigrid::Packed pack(const multigrid::State& u, const multigrid::Place& place) override;
  multigrid::State unpack(multigrid::Packed message, const multigrid::Place& place) override;
  std::optional<std::int64_t> packed_bytes(const multigrid::Place& place) override;
  multigrid::State zero(const multigrid::Place& place) override;
  multigrid::State coarsen(const multigrid::State& u, const multigrid::Place& place) override;
  multigrid::State refine(const multigrid::State& u, const multigrid::Place& place) override;

 protected:
  [[nodiscard]] virtual multigrid::State evaluate(const multigrid::State& u, const multigrid::Step& step) = 0;
  [[nodiscard]] bool coarsens() const { return static_cast<bool>(transfers_.coarsen); }
  // What a state looks like at a fine point of the problem's own time.
  [[nodiscard]] virtual const Layout& layout(std::int64_t fine_index) const = 0;
  // A fine state as it looks on `level`.
  [[nodiscard]] Tensors coarsened(Tensors x, int level) const;

  const Plan& plan_;
  Evaluator& evaluator_;
  const Shapes& shapes_;

 private:
  struct Taken {
    multigrid::State from, to;
  };
  Codec codec_;
  const Transfers& transfers_;
  std::map<std::pair<int, std::int64_t>, Taken> remembered_;  // the last of each coarse step, by level and index
};

class ForwardProblem final : public TensorProblem {
 public:
  struct Input {
    Tensors x;                                  // at point 0; used on its owner only
    std::function<Tensors(double time)> guess;  // for InitialGuess::kCallback
    Records* records = nullptr;                 // filled on the last sweep, if given
  };
  ForwardProblem(const Plan& plan, Evaluator& evaluator, Codec codec, const Shapes& shapes, const Transfers& transfers,
                 Input input);

  multigrid::State initial() override;
  multigrid::State guess(const multigrid::Place& place) override;

 private:
  [[nodiscard]] multigrid::State evaluate(const multigrid::State& u, const multigrid::Step& step) override;
  [[nodiscard]] const Layout& layout(std::int64_t fine_index) const override;

  Input input_;
};

// Steps gradients backward by vector-Jacobian products. Time is counted from the network's end.
class AdjointProblem final : public TensorProblem {
 public:
  // Called on the last sweep with the gradients of a layer's parameters, and of the extra tensors; some are undefined.
  using Collect = std::function<void(std::int64_t layer, const Tensors& gradients)>;
  struct Input {
    Tensors gradient;         // at the network's end; used on its owner only
    Records* records;         // of the forward pass
    const Tensors* extras;    // further tensors whose gradients are wanted
    bool keep_graph = false;  // another backward pass will follow
    Collect collect;
  };
  AdjointProblem(const Plan& plan, Evaluator& evaluator, Codec codec, const Shapes& shapes, const Transfers& transfers,
                 Input input);

  multigrid::State initial() override;

 private:
  [[nodiscard]] multigrid::State evaluate(const multigrid::State& u, const multigrid::Step& step) override;
  [[nodiscard]] const Layout& layout(std::int64_t fine_index) const override;
  [[nodiscard]] const Recorded& recorded(std::int64_t layer, const multigrid::Step& step);
  [[nodiscard]] Tensors pull_back(std::int64_t layer, const Recorded& recorded, const Tensors& gradient, bool final);

  Input input_;
  // Coarse steps of layers that see the step size are other functions than the fine ones.
  std::map<std::pair<int, std::int64_t>, Recorded> coarse_;
};

}  // namespace weft::layer_parallel
