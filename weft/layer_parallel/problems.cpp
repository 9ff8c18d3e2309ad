#include "weft/layer_parallel/problems.h"

#include <utility>

namespace weft::layer_parallel {

using multigrid::Packed;
using multigrid::Place;
using multigrid::State;
using multigrid::Step;

State TensorProblem::step(const State& u, const Step& step) {
  return cache_.step(u, step, [&] { return counted(u, step); });
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
  const double dt = plan_.dt(step.fine_stop - step.fine_start);
  return State::of(adjoint_step(evaluator_, layer, recorded(layer, step), u.as<Tensors>(), dt,
                                step.final ? &input_.weights : nullptr));
}

// For x + dt * f(x), f is the same on every level, so all levels can use one graph.
const Recorded& AdjointProblem::recorded(std::int64_t layer, const Step& step) {
  const Recorded& fine = input_.records->at(layer);
  if (step.level == 0) return fine;
  const bool same_function = evaluator_.layer(layer).form != Form::kStep && !coarsens();
  const auto changed = input_.relinearized->find(layer);
  const bool same_state = changed == input_.relinearized->end();
  if (same_function && same_state) return fine;
  auto [place, absent] = coarse_.try_emplace({same_function ? 1 : step.level, layer});
  if (absent) {
    const Tensors x = coarsened(same_state ? detached(fine.input) : changed->second, step.level);
    place->second = evaluator_.record(layer, x, plan_.dt(step.fine_stop - step.fine_start), Buffers::kRestore);
  }
  return place->second;
}

}  // namespace weft::layer_parallel
