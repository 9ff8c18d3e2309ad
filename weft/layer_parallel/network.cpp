#include "weft/layer_parallel/network.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "weft/collective/call.h"
#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/parameters.h"
#include "weft/layer_parallel/randomness.h"
#include "weft/layer_parallel/shapes.h"

namespace weft::layer_parallel {
namespace {

using collective::GradientCall;
using collective::Negotiation;
using collective::OperationNode;
using collective::Signature;
using torch::autograd::variable_list;

constexpr const char* kName = "layer_parallel";

// What a forward call leaves for its backward.
struct Pass {
  Records records;
  RandomSource random;
  Shapes shapes;
  Tensors extras;
  std::function<void()> prepare;
  at::Device device{at::kCPU};
  bool released = false;
};

std::map<std::int64_t, Layer> by_number(const std::vector<Layer>& layers) {
  std::map<std::int64_t, Layer> numbered;
  for (std::size_t i = 0; i < layers.size(); ++i) numbered.emplace(static_cast<std::int64_t>(i), layers[i]);
  return numbered;
}

Plan plan_for(const mpi::Team& comm, std::int64_t count, const Options& options) {
  return {count, comm.size(), options.tf, options.forward_grid, options.backward_grid};
}

// Runs a solve. Its ranks may count backward; errors name the team's own.
template <class Solve>
multigrid::Statistics run(const char* direction, bool backward, int ranks, Solve&& solve) {
  try {
    return solve();
  } catch (const multigrid::SolveError& error) {
    multigrid::Fault fault = error.fault();
    if (backward) fault.rank = ranks - 1 - fault.rank;
    throw multigrid::SolveError(fault, std::string(" (in the ") + direction + " solve of LayerParallel)");
  }
}

void require_guess_fits(const multigrid::Options& solve, const Shapes& shapes) {
  TORCH_CHECK(shapes.alike() || solve.initial_guess != multigrid::InitialGuess::kConstant,
              "weft: the state changes from ", shapes.input.describe(), " to ", shapes.output().describe(),
              " along the network, so one constant cannot be the guess everywhere; take another guess");
}

void require_layers(const Plan& plan, int rank, const std::map<std::int64_t, Layer>& given) {
  const auto require = [&](std::int64_t number) {
    TORCH_CHECK_VALUE(given.contains(number), "weft: layer ", number, " is missing on rank ", rank);
  };
  const partition::Range own = plan.layers_of(rank);
  for (std::int64_t number = own.begin; number < own.end; ++number) require(number);
  for (const std::int64_t number : plan.borrowed(rank)) require(number);
}

// Collective. The ranks agree that all of them make the same network, where a rank that fails can still be told of: MPI
// makes communicators in calls that nothing interrupts.
std::shared_ptr<mpi::Team> open_team(const mpi::Team& comm, std::int64_t count, const Options& options,
                                     const std::map<std::int64_t, Layer>& given) {
  Negotiation talk("LayerParallel", comm.id());
  Signature signature("LayerParallel");
  signature.add(count).add(options.ends == Ends::kAll ? 1 : 0);
  talk.check([&] {
    const Plan plan = plan_for(comm, count, options);
    signature.add(static_cast<std::int64_t>(plan.forward().signature()));
    signature.add(static_cast<std::int64_t>(plan.adjoint().signature()));
    require_layers(plan, comm.rank(), given);
  });
  talk.agree(signature, 0, [&] {
    return "LayerParallel of " + std::to_string(count) + " layers, tf=" + std::to_string(options.tf) + ", " +
           std::to_string(options.forward_grid.levels) + " levels forward, " +
           std::to_string(options.backward_grid.levels) + " backward";
  });
  return mpi::Team::over(comm.origin(), kName);
}

std::shared_ptr<mpi::Team> reversed(mpi::Team& team) {
  return mpi::Team::adopt(team.origin().split(0, team.size() - 1 - team.rank()));
}

}  // namespace

struct LayerParallel::Implementation : std::enable_shared_from_this<LayerParallel::Implementation> {
  Implementation(const std::shared_ptr<mpi::Team>& comm, std::int64_t count, std::map<std::int64_t, Layer> given,
                 std::vector<SharedParameter> shared_between, const Options& how)
      : team(open_team(*comm, count, how, given)),
        options(how),
        plan(plan_for(*comm, count, how)),
        layers(plan, comm->rank(), std::move(given)),
        shared(std::move(shared_between)),
        forward_solver(plan.forward(), team),
        adjoint_solver(plan.adjoint(), reversed(*team)) {
    index_parameters();
  }

  void index_parameters();
  [[nodiscard]] bool first() const { return team->rank() == 0; }
  [[nodiscard]] bool has_input() const { return first() || options.ends == Ends::kAll; }
  [[nodiscard]] bool one_level() const { return plan.forward().levels() == 1 && plan.adjoint().levels() == 1; }

  [[nodiscard]] Tensors forward(const Tensors& x, const Tensors& extras, std::function<void()> prepare);
  [[nodiscard]] Tensors loop(Tensors x);
  void learn_input(const Tensors& x, bool known_to_all);
  void find_shapes(at::Device device);
  [[nodiscard]] at::Device device_for(const Tensors& x) const;
  [[nodiscard]] Codec codec(const Pass& pass) const;
  [[nodiscard]] Tensors solve(const Tensors& x, Pass& pass, bool recording);
  [[nodiscard]] Tensors deliver_output(Tensors y, Pass& pass);
  [[nodiscard]] variable_list adjoint(const std::shared_ptr<Pass>& pass, variable_list&& gradients);
  [[nodiscard]] Tensors gradient_at_end(const Tensors& gradients, const Pass& pass);

  struct Adjoint {
    std::shared_ptr<Implementation> network;
    std::shared_ptr<Pass> pass;
    variable_list operator()(OperationNode& /*node*/, variable_list&& gradients) const {
      return network->adjoint(pass, std::move(gradients));
    }
    void release() {
      pass->records.clear();
      pass->released = true;
    }
  };

  std::shared_ptr<mpi::Team> team;
  Options options;
  Plan plan;
  LayerStore layers;
  std::vector<SharedParameter> shared;
  multigrid::Solver forward_solver;
  multigrid::Solver adjoint_solver;
  ParameterIndex parameters;
  Statistics statistics;
  Shapes shapes;                // for inputs like rank 0's last one, known to all
  std::vector<Tensors> looped;  // states that loop() kept
  std::uint64_t seed = 0;
  std::uint64_t passes = 0;
  bool shapes_known = false;
};

void LayerParallel::Implementation::index_parameters() {
  parameters = {};
  const partition::Range own = plan.layers_of(team->rank());
  for (std::int64_t number = own.begin; number < own.end; ++number) parameters.add(number, layers[number].parameters);
}

Tensors LayerParallel::Implementation::forward(const Tensors& x, const Tensors& extras, std::function<void()> prepare) {
  if (prepare) prepare();
  if (team->size() == 1 && one_level()) return loop(x);
  Tensors inputs = parameters.unique;
  inputs.insert(inputs.end(), extras.begin(), extras.end());
  if (has_input()) inputs.insert(inputs.begin(), x.begin(), x.end());
  const auto wants_grad =
      std::find_if(inputs.begin(), inputs.end(), [](const auto& t) { return t.defined() && t.requires_grad(); });
  const GradientCall call(wants_grad == inputs.end() ? at::zeros({}) : *wants_grad);
  auto pass = std::make_shared<Pass>();
  pass->extras = extras;
  pass->prepare = std::move(prepare);
  pass->device = device_for(x);
  Tensors y;
  {
    Negotiation talk(kName, team->id());
    talk.check([&] {
      if (has_input()) require_state(x, "an input");
    });
    const bool news = first() && (Layout::of(x) != shapes.input || RandomSource::initial_seed() != seed);
    const auto outcome = talk.agree(Signature(kName), news ? 1 : 0, [] { return std::string(kName); });
    y = collective::interruptible([&] {
      learn_input(x, outcome.value_max == 0);
      find_shapes(pass->device);
      layers.refresh(*team);
      return solve(x, *pass, call.recording());
    });
  }
  ++passes;
  if (call.recording()) {
    collective::record(kName, team, inputs, y, Adjoint{shared_from_this(), pass}, call.on_tape());
  }
  return y;
}

// One rank and one level: nothing to solve and nothing to add to what autograd does by itself.
Tensors LayerParallel::Implementation::loop(Tensors x) {
  require_state(x, "an input");
  RandomScope random({RandomSource::initial_seed(), passes++}, x.front().device());
  looped.clear();
  for (std::int64_t number = 0; number < plan.layers(); ++number) {
    Layer& layer = layers[number];
    random.begin(number);
    if (options.keep_states) looped.push_back(detached(x));
    Tensors y = layer.function(x, plan.dt());
    x = layer.form == Form::kResidual ? advance(x, y, plan.dt()) : std::move(y);
  }
  if (options.keep_states) looped.push_back(detached(x));
  return x;
}

// Tells everybody what rank 0's input looks like, and its seed, if either is new.
void LayerParallel::Implementation::learn_input(const Tensors& x, bool known_to_all) {
  if (known_to_all) return;
  std::vector<std::int64_t> numbers;
  if (first()) {
    numbers = Layout::of(x).encode();
    numbers.push_back(static_cast<std::int64_t>(RandomSource::initial_seed()));
  }
  numbers = announce(std::move(numbers), 0, *team);
  Layout layout = Layout::decode(numbers.data());
  if (layout != shapes.input) {
    shapes = {std::move(layout), {}};
    shapes_known = false;
    forward_solver.forget();  // a previous solution of another shape is no guess
    adjoint_solver.forget();
  }
  seed = static_cast<std::uint64_t>(numbers.back());
}

// With several levels a rank must know what states look like at points that nothing has computed yet. Found out once
// for each kind of input.
void LayerParallel::Implementation::find_shapes(at::Device device) {
  if (shapes_known || one_level() || options.transfers.coarsen) return;
  RandomScope random({seed, passes}, device);
  Evaluator evaluator(layers, random);
  shapes = learn_shapes(shapes.input, plan, evaluator, device, *team);
  shapes_known = true;
}

at::Device LayerParallel::Implementation::device_for(const Tensors& x) const {
  if (!x.empty() && x.front().defined()) return x.front().device();
  return parameters.unique.empty() ? at::Device(at::kCPU) : parameters.unique.front().device();
}

Codec LayerParallel::Implementation::codec(const Pass& pass) const {
  const bool alike = !one_level() && !options.transfers.coarsen && pass.shapes.alike();
  return {alike ? std::optional(pass.shapes.input) : std::nullopt, pass.device};
}

Tensors LayerParallel::Implementation::solve(const Tensors& x, Pass& pass, bool recording) {
  pass.random = {seed, passes};
  pass.shapes = shapes;
  require_guess_fits(options.forward, pass.shapes);
  RandomScope random(pass.random, pass.device);
  Evaluator evaluator(layers, random);
  ForwardProblem problem(plan, evaluator, codec(pass), pass.shapes, options.transfers,
                         {first() ? detached(x) : Tensors(), options.guess, recording ? &pass.records : nullptr});
  statistics.forward =
      run("forward", false, team->size(), [&] { return forward_solver.solve(problem, options.forward); });
  Tensors y;
  if (team->rank() == plan.last_rank()) y = forward_solver.solution(plan.layers()).as<Tensors>();
  if (!options.keep_states) forward_solver.release();
  return deliver_output(std::move(y), pass);
}

Tensors LayerParallel::Implementation::deliver_output(Tensors y, Pass& pass) {
  const Codec code = codec(pass);
  if (options.ends == Ends::kAll) {
    y = spread(std::move(y), plan.last_rank(), code, *team);
  } else {
    y = carry(std::move(y), plan.last_rank(), 0, code, *team);
    Layout output = pass.shapes.output();
    if (one_level()) {  // may look different from the input
      output = Layout::decode(announce((first() ? Layout::of(y) : Layout()).encode(), 0, *team).data());
    }
    if (!first()) y = output.zeros(pass.device);
  }
  return detached(y);
}

// The gradient at the network's end, on the rank where the adjoint run begins.
Tensors LayerParallel::Implementation::gradient_at_end(const Tensors& gradients, const Pass& pass) {
  if (options.ends == Ends::kAll) return mean(gradients, *team);
  return carry(gradients, 0, plan.last_rank(), codec(pass), *team);
}

variable_list LayerParallel::Implementation::adjoint(const std::shared_ptr<Pass>& pass, variable_list&& gradients) {
  TORCH_CHECK(!pass->released, "weft: backward through a LayerParallel network a second time; its graph is gone. Pass ",
              "retain_graph=True to the first backward");
  TORCH_CHECK(!c10::GradMode::is_enabled(), "weft: LayerParallel has no second derivatives (create_graph=True)");
  if (pass->prepare) pass->prepare();
  const bool keep_graph = torch::autograd::get_current_graph_task_keep_graph();
  require_guess_fits(options.backward, pass->shapes);
  RandomScope random(pass->random, pass->device);
  Evaluator evaluator(layers, random);
  Tensors sums(parameters.unique.size());
  Tensors extra_sums(pass->extras.size());
  const auto add = [](at::Tensor& sum, const at::Tensor& term) {
    if (term.defined()) sum = sum.defined() ? sum.add(term) : term;
  };
  const auto collect = [&](std::int64_t layer, const Tensors& found) {
    const auto& places = parameters.of_layer[layer];
    for (std::size_t i = 0; i < places.size(); ++i) add(sums[places[i]], found[i]);
    for (std::size_t i = 0; i < extra_sums.size(); ++i) add(extra_sums[i], found[places.size() + i]);
  };
  AdjointProblem problem(plan, evaluator, codec(*pass), pass->shapes, options.transfers,
                         {gradient_at_end(gradients, *pass), &pass->records, &pass->extras, keep_graph, collect});
  statistics.backward =
      run("backward", true, team->size(), [&] { return adjoint_solver.solve(problem, options.backward); });

  Tensors result;
  if (first()) result = adjoint_solver.solution(plan.layers()).as<Tensors>();
  adjoint_solver.release();
  if (options.ends == Ends::kAll) result = spread(std::move(result), 0, codec(*pass), *team);
  sum_copies(shared, parameters, sums, *team);
  result.insert(result.end(), sums.begin(), sums.end());
  result.insert(result.end(), extra_sums.begin(), extra_sums.end());
  return result;
}

LayerParallel::LayerParallel(const std::shared_ptr<mpi::Team>& comm, const std::vector<Layer>& layers,
                             const Options& options)
    : LayerParallel(comm, static_cast<std::int64_t>(layers.size()), by_number(layers),
                    find_shared(*comm, options.tf, layers), options) {}

LayerParallel::LayerParallel(const std::shared_ptr<mpi::Team>& comm, std::int64_t count,
                             std::map<std::int64_t, Layer> layers, std::vector<SharedParameter> shared,
                             const Options& options)
    : implementation_(std::make_shared<Implementation>(comm, count, std::move(layers), std::move(shared), options)) {}

LayerParallel::~LayerParallel() = default;
LayerParallel::LayerParallel(LayerParallel&&) noexcept = default;
LayerParallel& LayerParallel::operator=(LayerParallel&&) noexcept = default;

Tensors LayerParallel::forward(const Tensors& x, const Tensors& extras, std::function<void()> prepare) {
  return implementation_->forward(x, extras, std::move(prepare));
}

at::Tensor LayerParallel::forward(const at::Tensor& x, const Tensors& extras) {
  return implementation_->forward(x.defined() ? Tensors{x} : Tensors(), extras, nullptr).front();
}

const Tensors& LayerParallel::parameters() const { return implementation_->parameters.unique; }
const Plan& LayerParallel::plan() const { return implementation_->plan; }
const Options& LayerParallel::options() const { return implementation_->options; }
const Statistics& LayerParallel::statistics() const { return implementation_->statistics; }

void LayerParallel::set_solvers(const multigrid::Options& forward, const multigrid::Options& backward) {
  implementation_->options.forward = forward;
  implementation_->options.backward = backward;
}

void LayerParallel::release_states() {
  implementation_->forward_solver.release();
  implementation_->looped.clear();
}

std::vector<std::pair<std::int64_t, Tensors>> LayerParallel::states() const {
  const auto& solver = implementation_->forward_solver;
  std::vector<std::pair<std::int64_t, Tensors>> result;
  for (const auto& state : implementation_->looped) result.emplace_back(result.size(), state);
  if (!result.empty()) return result;
  const partition::Range points = solver.points();
  for (std::int64_t point = points.begin; point < points.end; ++point) {
    result.emplace_back(point, detached(solver.solution(point).as<Tensors>()));
  }
  return result;
}

void LayerParallel::rebind(std::int64_t layer, Tensors parameters, Tensors buffers) {
  implementation_->layers.rebind(layer, std::move(parameters), std::move(buffers));
  implementation_->index_parameters();
}

}  // namespace weft::layer_parallel
