#include "weft/planning/multigrid_graph.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include "weft/multigrid/problem/step_cache.h"
#include "weft/multigrid/solver.h"
#include "weft/planning/recording_transport.h"

namespace weft::planning {
namespace {

using layer_parallel::Plan;
using multigrid::Packed;
using multigrid::Place;
using multigrid::State;
using multigrid::Step;

// Channels beyond those of the levels.
constexpr int kWeights = 1000;
constexpr int kEnds = 1001;

// One direction of a training step. States have no value.
class CostProblem final : public multigrid::Problem {
 public:
  CostProblem(const Plan& plan, const NetworkCosts& costs, bool backward, Tasks& tasks)
      : plan_(plan), costs_(costs), backward_(backward), tasks_(tasks) {}

  State initial() override { return make(0); }
  State step(const State& u, const Step& step) override {
    return cache_.step(u, step, [&] { return make(seconds(step)); });
  }
  State combine(double /*a*/, State /*x*/, double /*b*/, State /*y*/) override { return make(costs_.combine); }
  double norm(const State& /*u*/) override {
    compute(tasks_, costs_.norm);
    return 1;
  }
  Packed pack(const State& u, const Place& /*place*/) override {
    // Only the length counts.
    return {{static_cast<const std::byte*>(nullptr), static_cast<std::size_t>(costs_.state_bytes)}, u.shared()};
  }
  State unpack(Packed /*message*/, const Place& /*place*/) override { return State::of(0); }
  std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override { return costs_.state_bytes; }
  State zero(const Place& /*place*/) override { return State::of(0); }
  State guess(const Place& /*place*/) override { return State::of(0); }

 private:
  State make(double seconds) {
    compute(tasks_, seconds);
    return State::of(0);
  }
  [[nodiscard]] double seconds(const Step& step) const {
    const std::int64_t layer = backward_ ? plan_.layers() - step.fine_stop : step.fine_start;
    const LayerCosts& costs = costs_.layers[static_cast<std::size_t>(layer)];
    if (backward_) return step.final ? costs.weighted_adjoint : costs.adjoint;
    return step.final ? costs.recorded : costs.forward;
  }

  const Plan& plan_;
  const NetworkCosts& costs_;
  bool backward_;
  Tasks& tasks_;
  multigrid::StepCache cache_;
};

multigrid::Options fixed_iterations(multigrid::Options options) {
  options.absolute_tolerance = options.relative_tolerance = 0;
  options.measure_last_change = true;  // as LayerParallel does
  if (options.initial_guess == multigrid::InitialGuess::kConstant && options.skip_downcycle) {
    options.initial_guess = multigrid::InitialGuess::kZero;  // as LayerParallel does
  }
  return options;
}

void add_solve(TaskGraph& graph, const Plan& plan, const multigrid::Options& options, const NetworkCosts& costs,
               bool backward) {
  const multigrid::TimeHierarchy& hierarchy = backward ? plan.adjoint() : plan.forward();
  const multigrid::Options how = fixed_iterations(options);
  Mail mail;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    Tasks& tasks = graph[static_cast<std::size_t>(backward ? plan.ranks() - 1 - rank : rank)];
    CostProblem problem(plan, costs, backward, tasks);
    multigrid::Solver solver(hierarchy,
                             std::make_shared<RecordingTransport>(rank, plan.ranks(), backward, mail, tasks));
    solver.solve(problem, how);
  }
}

// The owners of layers send their weights to the ranks that use them in coarse steps.
void add_weights(TaskGraph& graph, const Plan& plan, const NetworkCosts& costs) {
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    for (const std::int64_t layer : plan.borrowed(rank)) {
      send(graph[static_cast<std::size_t>(plan.owner(layer))], rank, kWeights,
           costs.layers[static_cast<std::size_t>(layer)].parameter_bytes);
    }
  }
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    for (const std::int64_t layer : plan.borrowed(rank)) {
      receive(graph[static_cast<std::size_t>(rank)], plan.owner(layer), kWeights);
    }
  }
}

// The output goes to rank 0, which computes the loss and returns the gradient of the output.
void add_loss(TaskGraph& graph, const Plan& plan, const NetworkCosts& costs) {
  const int last = plan.last_rank();
  Tasks& first_tasks = graph.front();
  Tasks& last_tasks = graph[static_cast<std::size_t>(last)];
  if (last != 0) send(last_tasks, 0, kEnds, costs.state_bytes);
  if (last != 0) receive(first_tasks, last, kEnds);
  compute(first_tasks, costs.loss);
  if (last != 0) send(first_tasks, last, kEnds, costs.state_bytes);
  if (last != 0) receive(last_tasks, 0, kEnds);
}

}  // namespace

TaskGraph multigrid_graph(const Plan& plan, const multigrid::Options& forward, const multigrid::Options& backward,
                          const NetworkCosts& costs) {
  if (static_cast<std::int64_t>(costs.layers.size()) != plan.layers()) {
    throw std::invalid_argument("weft: plan: expected the costs of " + std::to_string(plan.layers()) +
                                " layers, got those of " + std::to_string(costs.layers.size()));
  }
  TaskGraph graph(static_cast<std::size_t>(plan.ranks()));
  for (Tasks& tasks : graph) {
    compute(tasks, costs.fixed);
    synchronize(tasks);  // the agreement on the pass
  }
  add_weights(graph, plan, costs);
  add_solve(graph, plan, forward, costs, false);
  for (Tasks& tasks : graph) synchronize(tasks);  // random numbers
  add_loss(graph, plan, costs);
  add_solve(graph, plan, backward, costs, true);
  return graph;
}

}  // namespace weft::planning
