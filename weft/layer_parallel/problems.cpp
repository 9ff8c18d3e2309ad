#include "weft/layer_parallel/problems.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>
#include <vector>

namespace weft::layer_parallel {

using multigrid::Packed;
using multigrid::Place;
using multigrid::State;
using multigrid::Step;

namespace {

// Removes the hooks of leaf tensors while it is alive. They run when autograd accumulates the gradient that the solve
// returns, and must not run for the products inside the solve, too.
class HooksAside {
 public:
  HooksAside() = default;
  ~HooksAside() {
    for (auto& [tensor, hooks] : taken_) torch::autograd::impl::hooks(tensor) = std::move(hooks);
  }
  HooksAside(const HooksAside&) = delete;
  HooksAside& operator=(const HooksAside&) = delete;

  void take(const Tensors& tensors) {
    for (const auto& tensor : tensors) {
      if (!tensor.requires_grad() || !tensor.is_leaf()) continue;
      auto& hooks = torch::autograd::impl::hooks(tensor);
      if (!hooks.empty()) taken_.emplace_back(tensor, std::exchange(hooks, {}));
    }
  }

 private:
  std::vector<std::pair<at::Tensor, std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>>> taken_;
};

}  // namespace

State TensorProblem::step(const State& u, const Step& step) {
  if (step.final) cache_.clear();  // the coarse levels are done
  if (step.level == 0) return counted(u, step);
  auto& [from, to] = cache_[{step.level, step.index}];
  if (!from || from.shared() != u.shared()) {
    to = counted(u, step);
    from = u;
  }
  return to;
}

State TensorProblem::counted(const State& u, const Step& step) {
  ++evaluations_[static_cast<std::size_t>(step.level)];
  return evaluate(u, step);
}

State TensorProblem::combine(double a, State x, double b, State y) {
  return State::of(layer_parallel::combine(a, x.as<Tensors>(), b, y.as<Tensors>()));
}

double TensorProblem::norm(const State& u) { return layer_parallel::norm(u.as<Tensors>()); }

bool TensorProblem::finite(const State& u) { return layer_parallel::finite(u.as<Tensors>()); }

Packed TensorProblem::pack(const State& u, const Place& /*place*/) { return codec_.pack(u.as<Tensors>()); }

State TensorProblem::unpack(Packed message, const Place& /*place*/) {
  return State::of(codec_.unpack(std::move(message)));
}

std::optional<std::int64_t> TensorProblem::packed_bytes(const Place& /*place*/) { return codec_.bytes(); }

State TensorProblem::zero(const Place& place) { return State::of(layout(place.fine_index).zeros(codec_.device())); }

State TensorProblem::coarsen(const State& u, const Place& place) {
  return transfers_.coarsen ? State::of(transfers_.coarsen(u.as<Tensors>(), place.level)) : u;
}

State TensorProblem::refine(const State& u, const Place& place) {
  return transfers_.refine ? State::of(transfers_.refine(u.as<Tensors>(), place.level)) : u;
}

Tensors TensorProblem::coarsened(Tensors x, int level) const {
  for (int finer = 0; coarsens() && finer < level; ++finer) x = transfers_.coarsen(x, finer);
  return x;
}

ForwardProblem::ForwardProblem(const Plan& plan, LayerEvaluator& evaluator, Codec codec, const Shapes& shapes,
                               const Transfers& transfers, Input input)
    : TensorProblem(plan, evaluator, std::move(codec), shapes, transfers, plan.forward().levels()),
      input_(std::move(input)) {}

const StateLayout& ForwardProblem::layout(std::int64_t fine_index) const { return shapes_.at(fine_index); }

State ForwardProblem::initial() { return State::of(input_.x); }

State ForwardProblem::guess(const Place& place) {
  return State::of(input_.guess ? input_.guess(place.t) : Problem::guess(place).as<Tensors>());
}

State ForwardProblem::evaluate(const State& u, const Step& step) {
  const std::int64_t layer = step.fine_start;
  const double dt = plan_.dt(step.fine_stop - step.fine_start);
  const auto& x = u.as<Tensors>();
  if (!step.final) return State::of(evaluator_.next(layer, x, dt, Buffers::kRestore));
  if (input_.records == nullptr) return State::of(evaluator_.next(layer, x, dt, Buffers::kKeep));
  Recorded& recorded = (*input_.records)[layer] = evaluator_.record(layer, x, dt, Buffers::kKeep);
  return State::of(evaluator_.next(layer, recorded, dt));
}

AdjointProblem::AdjointProblem(const Plan& plan, LayerEvaluator& evaluator, Codec codec, const Shapes& shapes,
                               const Transfers& transfers, Input input)
    : TensorProblem(plan, evaluator, std::move(codec), shapes, transfers, plan.adjoint().levels()),
      input_(std::move(input)) {}

const StateLayout& AdjointProblem::layout(std::int64_t fine_index) const {
  return shapes_.at(plan_.layers() - fine_index);
}

State AdjointProblem::initial() { return State::of(input_.gradient); }

State AdjointProblem::evaluate(const State& u, const Step& step) {
  const std::int64_t layer = plan_.layers() - step.fine_stop;
  const auto& gradient = u.as<Tensors>();
  const Recorded& record = recorded(layer, step);
  if (evaluator_.layer(layer).form != Form::kResidual) {
    return State::of(vector_jacobian_product(layer, record, gradient, step.final));
  }
  const c10::AutoGradMode no_grad(false);
  const double dt = plan_.dt(step.fine_stop - step.fine_start);
  // Only the gradients of the weights need the factor dt before the product.
  if (!step.final) return State::of(advance(gradient, vector_jacobian_product(layer, record, gradient, false), dt));
  Tensors scaled;
  for (const auto& tensor : gradient) scaled.push_back(at::mul(tensor, dt));
  return State::of(advance(gradient, vector_jacobian_product(layer, record, scaled, true), 1));
}

// For x + dt * f(x), f is the same on every level, so all levels use one graph.
const Recorded& AdjointProblem::recorded(std::int64_t layer, const Step& step) {
  const Recorded& fine = input_.records->at(layer);
  if (step.level == 0 || (evaluator_.layer(layer).form != Form::kStep && !coarsens())) return fine;
  auto [place, absent] = coarse_.try_emplace({step.level, layer});
  if (absent) {
    const Tensors x = coarsened(detached(fine.input), step.level);
    place->second = evaluator_.record(layer, x, plan_.dt(step.fine_stop - step.fine_start), Buffers::kRestore);
  }
  return place->second;
}

// Returns the gradients of the input of a recorded evaluation. On the last sweep it also collects those of the weights.
Tensors AdjointProblem::vector_jacobian_product(std::int64_t layer, const Recorded& recorded, const Tensors& gradient,
                                                bool final) {
  using torch::autograd::impl::gradient_edge;
  torch::autograd::edge_list roots, targets;
  torch::autograd::variable_list seeds;
  for (std::size_t i = 0; i < recorded.output.size(); ++i) {
    if (!recorded.output[i].requires_grad()) continue;
    roots.push_back(gradient_edge(recorded.output[i]));
    seeds.push_back(gradient[i]);
  }
  for (const auto& leaf : recorded.input) targets.push_back(gradient_edge(leaf));
  const auto& parameters = evaluator_.layer(layer).parameters;
  std::vector<std::size_t> wanted;  // indices of the parameters and extras that require grad
  const auto ask_for = [&](const at::Tensor& tensor, std::size_t number) {
    if (!tensor.requires_grad()) return;
    wanted.push_back(number);
    targets.push_back(gradient_edge(tensor));
  };
  HooksAside hooks;
  if (final) {
    for (std::size_t i = 0; i < parameters.size(); ++i) ask_for(parameters[i], i);
    for (std::size_t i = 0; i < input_.extras->size(); ++i) ask_for((*input_.extras)[i], parameters.size() + i);
    hooks.take(parameters);
    hooks.take(*input_.extras);
  }
  torch::autograd::variable_list found(targets.size());
  if (!roots.empty()) {
    try {
      // Not the override of Python's engine: it would also set Python's error indicator, and the solve continues.
      found = torch::autograd::Engine::get_default_engine().torch::autograd::Engine::execute(
          roots, seeds, !final || input_.keep_graph, /*create_graph=*/false, /*accumulate_grad=*/false, targets);
    } catch (...) {
      rethrow_as_layer_error(layer, evaluator_.layer(layer));
    }
  }
  const std::size_t inputs = recorded.input.size();
  if (final) {
    Tensors collected(parameters.size() + input_.extras->size());
    for (std::size_t i = 0; i < wanted.size(); ++i) collected[wanted[i]] = found[inputs + i];
    input_.collect(layer, collected);
  }
  found.resize(inputs);
  for (std::size_t i = 0; i < inputs; ++i) {
    if (!found[i].defined()) found[i] = at::zeros_like(recorded.input[i]);
  }
  return found;
}

}  // namespace weft::layer_parallel
