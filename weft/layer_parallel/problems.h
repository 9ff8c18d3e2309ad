// The network and its adjoint as time-stepping problems for the multigrid solver.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "weft/layer_parallel/adjoint_step.h"
#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/shapes.h"
#include "weft/layer_parallel/states.h"
#include "weft/multigrid/problem/problem.h"
#include "weft/multigrid/problem/step_cache.h"

namespace weft::layer_parallel {

// The evaluations of a pass on its last sweep, with their graphs, by layer number.
using Records = std::map<std::int64_t, Recorded>;

// States before some layers, by layer number.
using LayerStates = std::map<std::int64_t, Tensors>;

// The common part of both directions: operations on states of tensors.
class TensorProblem : public multigrid::Problem {
 public:
  TensorProblem(const Plan& plan, LayerEvaluator& evaluator, Codec codec, const Shapes& shapes,
                const Transfers& transfers, int levels)
      : plan_(plan),
        evaluator_(evaluator),
        shapes_(shapes),
        codec_(std::move(codec)),
        transfers_(transfers),
        evaluations_(static_cast<std::size_t>(levels)) {}

  // Coarse steps that were just evaluated come from a cache.
  multigrid::State step(const multigrid::State& u, const multigrid::Step& step) final;
  multigrid::State combine(double a, multigrid::State x, double b, multigrid::State y) override;
  double norm(const multigrid::State& u) override;
  bool finite(const multigrid::State& u) override;
  multigrid::Packed pack(const multigrid::State& u, const multigrid::Place& place) override;
  multigrid::State unpack(multigrid::Packed message, const multigrid::Place& place) override;
  std::optional<std::int64_t> packed_bytes(const multigrid::Place& place) override;
  // The numbers of evaluations on each level, without those that the cache answered.
  [[nodiscard]] const std::vector<std::int64_t>& evaluations() const noexcept { return evaluations_; }
  multigrid::State zero(const multigrid::Place& place) override;
  multigrid::State coarsen(const multigrid::State& u, const multigrid::Place& place) override;
  multigrid::State refine(const multigrid::State& u, const multigrid::Place& place) override;

 protected:
  [[nodiscard]] virtual multigrid::State evaluate(const multigrid::State& u, const multigrid::Step& step) = 0;
  [[nodiscard]] bool coarsens() const { return static_cast<bool>(transfers_.coarsen); }
  // The layout of the state at a fine point, in the problem's own time.
  [[nodiscard]] virtual const StateLayout& layout(std::int64_t fine_index) const = 0;
  // Coarsens a fine state to `level`.
  [[nodiscard]] Tensors coarsened(Tensors x, int level) const;

  const Plan& plan_;
  LayerEvaluator& evaluator_;
  const Shapes& shapes_;

 private:
  [[nodiscard]] multigrid::State counted(const multigrid::State& u, const multigrid::Step& step);

  Codec codec_;
  const Transfers& transfers_;
  std::vector<std::int64_t> evaluations_;
  multigrid::StepCache cache_;
};

class ForwardProblem final : public TensorProblem {
 public:
  struct Input {
    Tensors x;                                  // state at point 0; only the point's owner uses it
    std::function<Tensors(double time)> guess;  // for InitialGuess::kCallback
    Records* records = nullptr;                 // filled on the last sweep unless null
  };
  ForwardProblem(const Plan& plan, LayerEvaluator& evaluator, Codec codec, const Shapes& shapes,
                 const Transfers& transfers, Input input);

  multigrid::State initial() override;
  multigrid::State guess(const multigrid::Place& place) override;

 private:
  [[nodiscard]] multigrid::State evaluate(const multigrid::State& u, const multigrid::Step& step) override;
  [[nodiscard]] const StateLayout& layout(std::int64_t fine_index) const override;

  Input input_;
};

// Propagates gradients backward by vector-Jacobian products. Time counts from the end of the network.
class AdjointProblem final : public TensorProblem {
 public:
  struct Input {
    Tensors gradient;  // gradient at the end of the network; only the owner of that point uses it
    Records* records;  // records of the forward pass
    // States for coarse steps that replace those of the records.
    const LayerStates* relinearized;
    WeightGradients weights;  // collected on the last sweep
  };
  AdjointProblem(const Plan& plan, LayerEvaluator& evaluator, Codec codec, const Shapes& shapes,
                 const Transfers& transfers, Input input);

  multigrid::State initial() override;

 private:
  [[nodiscard]] multigrid::State evaluate(const multigrid::State& u, const multigrid::Step& step) override;
  [[nodiscard]] const StateLayout& layout(std::int64_t fine_index) const override;
  [[nodiscard]] const Recorded& recorded(std::int64_t layer, const multigrid::Step& step);

  Input input_;
  // Evaluations of coarse steps, for layers whose function or state differs from that of the fine step.
  std::map<std::pair<int, std::int64_t>, Recorded> coarse_;
};

}  // namespace weft::layer_parallel
