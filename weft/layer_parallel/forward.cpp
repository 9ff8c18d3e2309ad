#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "weft/collective/autograd/call.h"
#include "weft/layer_parallel/micro_batches.h"
#include "weft/layer_parallel/network_implementation.h"
#include "weft/layer_parallel/state_transfer.h"
#include "weft/mpi/options.h"

namespace weft::layer_parallel {

using collective::CollectiveCall;
using collective::GradientCall;
using collective::Signature;

namespace {

// A rank sends this value instead of the seed if the other ranks must learn about its input or its shared parameters.
constexpr PassSeed kChanged = -1;

std::string describe(const PassRequest& request) {
  return std::string(kName) + (request.solver == SolverKind::kPipeline ? " (pipeline" : " (multigrid") +
         (request.loss ? ", loss)" : ")");
}

}  // namespace

multigrid::Options options_for(multigrid::Options solve, const ForwardPass& pass) {
  using multigrid::InitialGuess;
  solve.measure_last_change = true;
  if (solve.initial_guess != InitialGuess::kConstant) return solve;
  if (!pass.shapes.alike()) {
    solve.initial_guess = InitialGuess::kCoarseSolve;
  } else if (solve.skip_downcycle && !solve.relax_coarsest_only && !pass.transfers.coarsen) {
    solve.initial_guess = InitialGuess::kZero;  // the first cycle replaces the guess, so do not send it to all ranks
  }
  return solve;
}

Tensors LayerParallel::Implementation::forward(Tensors x, const Tensors& extras, PassFunctions functions,
                                               const PassRequest& request) {
  std::exception_ptr problem;
  try {
    if (functions.input) x = std::exchange(functions.input, nullptr)();
  } catch (...) {
    problem = std::current_exception();
  }
  if (communicator->size() == 1 && one_level() && !request.loss) {
    if (problem) std::rethrow_exception(problem);
    return loop(x, functions);
  }
  Tensors inputs = parameters.unique;
  inputs.insert(inputs.end(), extras.begin(), extras.end());
  if (has_input()) inputs.insert(inputs.begin(), x.begin(), x.end());
  const auto wants_grad =
      std::find_if(inputs.begin(), inputs.end(), [](const auto& t) { return t.defined() && t.requires_grad(); });
  const GradientCall gradient(wants_grad == inputs.end() ? at::zeros({}) : *wants_grad);
  auto pass = std::make_shared<ForwardPass>();
  pass->extras = extras;
  pass->functions = std::move(functions);
  pass->transfers = pass->functions.transfers.coarsen ? pass->functions.transfers : options.transfers;
  pass->device = device_for(x);
  pass->solver = request.solver;
  pass->requested_micro_batches = request.micro_batches;
  Tensors y;
  Tensors gradients;  // of the inputs, if the loss has already computed them
  {
    CollectiveCall call(kName, communicator->id());
    call.check([&] {
      if (problem) std::rethrow_exception(problem);
      if (has_input()) require_input(x, request);
    });
    const bool changed = shared.changed() || (first() && StateLayout::of(x) != shapes.input);
    pass->seed = changed ? kChanged : next_pass_seed();
    Signature signature(kName);
    signature.add(static_cast<std::int64_t>(request.solver)).add(request.loss ? 1 : 0);
    const auto outcome = call.agree(signature, pass->seed, [&] { return describe(request); });
    // Without checks the values of the other ranks are unknown.
    const bool unknown = !mpi::options().check;
    y = collective::interruptible([&] {
      if (unknown || !outcome.same_value() || changed) learn_input(x, *pass);
      if (unknown || outcome.value_min == kChanged) shared.learn(*communicator);
      return run_pass(x, *pass, gradient.recording(), request, inputs, gradients);
    });
  }
  if (pass->used_random_numbers) draw_pass_seed();
  if (request.gradients != nullptr) {
    *request.gradients = {y.front(), std::move(inputs), std::move(gradients), has_input() ? x.size() : 0,
                          parameters.unique.size()};
  } else if (gradient.recording() && request.loss) {
    record_loss(inputs, y, std::move(gradients), gradient.on_tape());
  } else if (gradient.recording()) {
    collective::record(kName, communicator, inputs, y, Adjoint{shared_from_this(), pass}, gradient.on_tape());
  }
  if (pass->functions.solved) pass->functions.solved(false);
  return y;
}

Tensors LayerParallel::Implementation::run_pass(const Tensors& x, ForwardPass& pass, bool recording,
                                                const PassRequest& request, Tensors& inputs, Tensors& gradients) {
  find_shapes(pass);
  if (request.solver == SolverKind::kPipeline) {
    if (request.loss) return pipeline_loss(x, pass, recording, request.loss, inputs, gradients);
    return pipeline_forward(x, pass, recording);
  }
  layers.refresh(*communicator, pass.functions);
  if (request.loss) return multigrid_loss(x, pass, request.loss, inputs, gradients);
  return solve(x, pass, recording);
}

// One rank and one level need no solver; autograd differentiates the loop.
Tensors LayerParallel::Implementation::loop(const Tensors& x, const PassFunctions& functions) {
  require_input(x, output_request());
  points.clear();
  Tensors y;
  bool used_random_numbers = false;
  {
    RandomScope random(next_pass_seed(), x.front().device());
    if (options.solver == SolverKind::kMultigrid) {
      y = loop_over_layers(x, functions, random);
    } else {
      std::vector<Tensors> outputs;
      for (const MicroBatch& batch : micro_batches_for(StateLayout::of(x), options.micro_batches)) {
        random.set_micro_batch(static_cast<std::int64_t>(outputs.size()));
        if (functions.begin_micro_batch) functions.begin_micro_batch(batch.rows, x.front().size(0));
        outputs.push_back(loop_over_layers(rows_of(x, batch.rows), functions, random));
        require_rows_kept(outputs.back(), batch.rows);
      }
      y = join(outputs);
    }
    used_random_numbers = random.used();
  }
  if (used_random_numbers) draw_pass_seed();
  return y;
}

Tensors LayerParallel::Implementation::loop_over_layers(Tensors x, const PassFunctions& functions,
                                                        RandomScope& random) {
  for (std::int64_t number = 0; number < plan.layers(); ++number) {
    Layer& layer = layers[number];
    random.begin(number);
    keep_point(number, x);
    Tensors y =
        functions.evaluate ? functions.evaluate(number, x, plan.dt(), Buffers::kKeep) : layer.function(x, plan.dt());
    x = layer.form == Form::kResidual ? advance(x, y, plan.dt()) : std::move(y);
  }
  keep_point(plan.layers(), x);
  return x;
}

// Appends the rows of a micro-batch to the state of a point.
void LayerParallel::Implementation::keep_point(std::int64_t point, const Tensors& state) {
  if (!options.keep_states) return;
  Tensors& kept = points[point];
  kept = kept.empty() ? detached(state) : join({kept, detached(state)});
}

void LayerParallel::Implementation::require_input(const Tensors& x, const PassRequest& request) {
  require_state(x, "an input");
  if (request.solver == SolverKind::kPipeline) require_rows(StateLayout::of(x), request.micro_batches);
}

// Broadcasts the layout of rank 0's input and the seed of the pass.
void LayerParallel::Implementation::learn_input(const Tensors& x, ForwardPass& pass) {
  std::vector<std::int64_t> numbers;
  if (first()) {
    numbers = StateLayout::of(x).encode();
    numbers.push_back(next_pass_seed());
  }
  numbers = broadcast_numbers(std::move(numbers), 0, *communicator);
  StateLayout layout = StateLayout::decode(numbers.data());
  if (layout != shapes.input) {
    shapes = {std::move(layout), {}};
    shapes_known = false;
    forward_solver.clear();  // the shape changed, so the previous solution cannot be the initial guess
    adjoint_solver.clear();
  }
  pass.seed = numbers.back();
}

// With several levels, a rank must know the layouts of states before they are computed. Determines them once per layout
// of the input.
void LayerParallel::Implementation::find_shapes(const ForwardPass& pass) {
  if (shapes_known || one_level() || pass.transfers.coarsen) return;
  RandomScope random(pass.seed, pass.device);
  LayerEvaluator evaluator(layers, random, pass.functions);
  shapes = learn_shapes(shapes.input, plan, evaluator, pass.device, *communicator);
  shapes_known = true;
}

at::Device LayerParallel::Implementation::device_for(const Tensors& x) const {
  if (!x.empty() && x.front().defined()) return x.front().device();
  return parameters.unique.empty() ? at::Device(at::kCPU) : parameters.unique.front().device();
}

Codec LayerParallel::Implementation::codec(const ForwardPass& pass) const {
  const bool alike =
      pass.solver == SolverKind::kMultigrid && !one_level() && !pass.transfers.coarsen && pass.shapes.alike();
  return {alike ? std::optional(pass.shapes.input) : std::nullopt, pass.device};
}

Tensors LayerParallel::Implementation::solve(const Tensors& x, ForwardPass& pass, bool recording) {
  pass.shapes = shapes;
  points.clear();
  RandomScope random(pass.seed, pass.device);
  LayerEvaluator evaluator(layers, random, pass.functions);
  ForwardProblem problem(
      plan, evaluator, codec(pass), pass.shapes, pass.transfers,
      {first() ? detached(x) : Tensors(), pass.functions.guess ? pass.functions.guess : options.guess,
       recording ? &pass.records : nullptr});
  const multigrid::Options how = options_for(options.forward, pass);
  statistics.forward = run_solve(plan.forward(), false, [&] { return forward_solver.solve(problem, how); });
  statistics.forward.steps = problem.evaluations();
  note_random_numbers(random, pass);
  if (recording && options.relinearize) pass.relinearized = states_after_last_sweep(pass);
  Tensors y;
  if (communicator->rank() == plan.last_rank()) y = forward_solver.solution(plan.layers()).as<Tensors>();
  if (!options.keep_states) forward_solver.release();
  return deliver_output(std::move(y), pass);
}

// The last sweep records the layers at C-points with the old values of these points and then replaces the values. The
// input of a rank's first layer belongs to the rank before.
LayerStates LayerParallel::Implementation::states_after_last_sweep(const ForwardPass& pass) {
  const multigrid::TimeHierarchy& grid = plan.forward();
  LayerStates states;
  if (grid.levels() == 1) return states;
  const auto changes = [&](std::int64_t layer) { return layer > 0 && grid.is_c_point(0, layer); };
  const auto state = [&](std::int64_t point) { return forward_solver.solution(point).as<Tensors>(); };
  const partition::Range own = plan.layers_of(communicator->rank());
  for (std::int64_t layer = own.begin + 1; layer < own.end; ++layer) {
    if (changes(layer)) states[layer] = state(layer);
  }
  for (int to = plan.last_rank(); to > 0; --to) {  // in this order, each rank sends before it receives
    const std::int64_t layer = plan.layers_of(to).begin;
    if (!changes(layer)) continue;
    Tensors border = communicator->rank() == to - 1 ? state(layer) : Tensors();
    border = send_state(std::move(border), to - 1, to, codec(pass), *communicator);
    if (communicator->rank() == to) states[layer] = std::move(border);
  }
  return states;
}

Tensors LayerParallel::Implementation::deliver_output(Tensors y, ForwardPass& pass) {
  const Codec code = codec(pass);
  if (options.replicated) return detached(broadcast_state(std::move(y), plan.last_rank(), code, *communicator));
  return zeros_like_output(send_state(std::move(y), plan.last_rank(), 0, code, *communicator), pass);
}

Tensors LayerParallel::Implementation::zeros_like_output(Tensors y, const ForwardPass& pass) {
  StateLayout output = pass.shapes.output();
  if (one_level()) {  // the layout of the output may differ from that of the input
    output = StateLayout::decode(
        broadcast_numbers((first() ? StateLayout::of(y) : StateLayout()).encode(), 0, *communicator).data());
  }
  return detached(first() ? y : output.zeros(pass.device));
}

void LayerParallel::Implementation::note_random_numbers(RandomScope& random, ForwardPass& pass) {
  pass.used_random_numbers =
      communicator->agree(mpi::Direction::kForward, {.value = random.used() ? 1 : 0}).value_max > 0;
}

}  // namespace weft::layer_parallel
