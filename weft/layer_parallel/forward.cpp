#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "weft/collective/autograd/call.h"
#include "weft/layer_parallel/network_implementation.h"
#include "weft/layer_parallel/state_transfer.h"

namespace weft::layer_parallel {

using collective::CollectiveCall;
using collective::GradientCall;
using collective::Signature;

void require_guess_fits(const multigrid::Options& solve, const Shapes& shapes) {
  TORCH_CHECK(shapes.alike() || solve.initial_guess != multigrid::InitialGuess::kConstant,
              "weft: the state changes from ", shapes.input.describe(), " to ", shapes.output().describe(),
              " along the network, so the initial guess cannot be constant; select another initial guess");
}

Tensors LayerParallel::Implementation::forward(const Tensors& x, const Tensors& extras, std::function<void()> prepare) {
  if (prepare) prepare();
  if (communicator->size() == 1 && one_level()) return loop(x);
  Tensors inputs = parameters.unique;
  inputs.insert(inputs.end(), extras.begin(), extras.end());
  if (has_input()) inputs.insert(inputs.begin(), x.begin(), x.end());
  const auto wants_grad =
      std::find_if(inputs.begin(), inputs.end(), [](const auto& t) { return t.defined() && t.requires_grad(); });
  const GradientCall gradient(wants_grad == inputs.end() ? at::zeros({}) : *wants_grad);
  auto pass = std::make_shared<ForwardPass>();
  pass->extras = extras;
  pass->prepare = std::move(prepare);
  pass->device = device_for(x);
  Tensors y;
  {
    CollectiveCall call(kName, communicator->id());
    call.check([&] {
      if (has_input()) require_state(x, "an input");
    });
    const bool changed = first() && (StateLayout::of(x) != shapes.input || RandomSource::initial_seed() != seed);
    const auto outcome = call.agree(Signature(kName), changed ? 1 : 0, [] { return std::string(kName); });
    y = collective::interruptible([&] {
      learn_input(x, outcome.value_max == 0);
      find_shapes(pass->device);
      layers.refresh(*communicator);
      return solve(x, *pass, gradient.recording());
    });
  }
  ++passes;
  if (gradient.recording()) {
    collective::record(kName, communicator, inputs, y, Adjoint{shared_from_this(), pass}, gradient.on_tape());
  }
  return y;
}

// One rank and one level need no solver; autograd differentiates the loop.
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

// Broadcasts the layout of rank 0's input and its seed, if either has changed.
void LayerParallel::Implementation::learn_input(const Tensors& x, bool known_to_all) {
  if (known_to_all) return;
  std::vector<std::int64_t> numbers;
  if (first()) {
    numbers = StateLayout::of(x).encode();
    numbers.push_back(static_cast<std::int64_t>(RandomSource::initial_seed()));
  }
  numbers = broadcast_numbers(std::move(numbers), 0, *communicator);
  StateLayout layout = StateLayout::decode(numbers.data());
  if (layout != shapes.input) {
    shapes = {std::move(layout), {}};
    shapes_known = false;
    forward_solver.clear();  // the shape changed, so the previous solution cannot be the initial guess
    adjoint_solver.clear();
  }
  seed = static_cast<std::uint64_t>(numbers.back());
}

// With several levels, a rank must know the layouts of states before they are computed. Determines them once per layout
// of the input.
void LayerParallel::Implementation::find_shapes(at::Device device) {
  if (shapes_known || one_level() || options.transfers.coarsen) return;
  RandomScope random({seed, passes}, device);
  LayerEvaluator evaluator(layers, random);
  shapes = learn_shapes(shapes.input, plan, evaluator, device, *communicator);
  shapes_known = true;
}

at::Device LayerParallel::Implementation::device_for(const Tensors& x) const {
  if (!x.empty() && x.front().defined()) return x.front().device();
  return parameters.unique.empty() ? at::Device(at::kCPU) : parameters.unique.front().device();
}

Codec LayerParallel::Implementation::codec(const ForwardPass& pass) const {
  const bool alike = !one_level() && !options.transfers.coarsen && pass.shapes.alike();
  return {alike ? std::optional(pass.shapes.input) : std::nullopt, pass.device};
}

Tensors LayerParallel::Implementation::solve(const Tensors& x, ForwardPass& pass, bool recording) {
  pass.random = {seed, passes};
  pass.shapes = shapes;
  require_guess_fits(options.forward, pass.shapes);
  RandomScope random(pass.random, pass.device);
  LayerEvaluator evaluator(layers, random);
  ForwardProblem problem(plan, evaluator, codec(pass), pass.shapes, options.transfers,
                         {first() ? detached(x) : Tensors(), options.guess, recording ? &pass.records : nullptr});
  statistics.forward =
      run_solve("forward", false, communicator->size(), [&] { return forward_solver.solve(problem, options.forward); });
  Tensors y;
  if (communicator->rank() == plan.last_rank()) y = forward_solver.solution(plan.layers()).as<Tensors>();
  if (!options.keep_states) forward_solver.release();
  return deliver_output(std::move(y), pass);
}

Tensors LayerParallel::Implementation::deliver_output(Tensors y, ForwardPass& pass) {
  const Codec code = codec(pass);
  if (options.replicated) {
    y = broadcast_state(std::move(y), plan.last_rank(), code, *communicator);
  } else {
    y = send_state(std::move(y), plan.last_rank(), 0, code, *communicator);
    StateLayout output = pass.shapes.output();
    if (one_level()) {  // the layout of the output may differ from that of the input
      output = StateLayout::decode(
          broadcast_numbers((first() ? StateLayout::of(y) : StateLayout()).encode(), 0, *communicator).data());
    }
    if (!first()) y = output.zeros(pass.device);
  }
  return detached(y);
}

}  // namespace weft::layer_parallel
