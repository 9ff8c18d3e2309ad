#include "weft/layer_parallel/network.h"

#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include "weft/collective/autograd/call.h"
#include "weft/layer_parallel/network_implementation.h"

namespace weft::layer_parallel {
namespace {

using collective::CollectiveCall;
using collective::Signature;

std::map<std::int64_t, Layer> by_number(const std::vector<Layer>& layers) {
  std::map<std::int64_t, Layer> numbered;
  for (std::size_t i = 0; i < layers.size(); ++i) numbered.emplace(static_cast<std::int64_t>(i), layers[i]);
  return numbered;
}

Options with_forms(Options options, const std::vector<Layer>& layers) {
  options.forms.clear();
  for (const Layer& layer : layers) options.forms.push_back(layer.form);
  return options;
}

const char* name_of(Form form) {
  switch (form) {
    case Form::kResidual:
      return "residual";
    case Form::kStep:
      return "step";
    case Form::kPlain:
      break;
  }
  return "plain";
}

// Returns text such as "residual x 12, plain x 2".
std::string describe(const std::vector<Form>& forms) {
  std::string text;
  for (std::size_t first = 0, next = 0; first < forms.size(); first = next) {
    while (next < forms.size() && forms[next] == forms[first]) ++next;
    text += std::string(text.empty() ? "" : ", ") + name_of(forms[first]) + " x " + std::to_string(next - first);
  }
  return text;
}

std::string describe(const GridOptions& grid) {
  std::string text =
      std::to_string(grid.levels) + " levels, coarsening factor " + std::to_string(grid.coarsening.everywhere());
  for (const auto& [level, factor] : grid.coarsening.exceptions()) {
    text += " (level " + std::to_string(level) + ": " + std::to_string(factor) + ")";
  }
  return text + ", at least " + std::to_string(grid.min_coarse_steps) + " coarse steps";
}

// Different networks have different texts.
std::string describe(std::int64_t count, const Options& options) {
  std::ostringstream text;
  text << "LayerParallel of " << count << " layers (" << describe(options.forms)
       << "), tf=" << std::setprecision(std::numeric_limits<double>::max_digits10) << options.tf
       << (options.replicated ? ", replicated" : "");
  if (options.solver == SolverKind::kPipeline) {
    text << "; pipeline of " << options.micro_batches << " micro-batches";
    return text.str();
  }
  text << "; forward " << describe(options.forward_grid) << "; backward " << describe(options.backward_grid);
  return text.str();
}

Plan plan_for(const Communicator& comm, std::int64_t count, const Options& options) {
  if (options.solver == SolverKind::kPipeline) return {count, comm.size(), options.tf, {}, {}};
  return {count, comm.size(), options.tf, options.forward_grid, options.backward_grid};
}

void require_layers(const Plan& plan, int rank, const std::map<std::int64_t, Layer>& given) {
  const auto require = [&](std::int64_t number) {
    TORCH_CHECK_VALUE(given.contains(number), "weft: layer ", number, " is missing on rank ", rank);
  };
  const partition::Range own = plan.layers_of(rank);
  for (std::int64_t number = own.begin; number < own.end; ++number) require(number);
  for (const std::int64_t number : plan.borrowed(rank)) require(number);
}

// Collective. Makes the ranks agree on the network before MPI creates the communicator, because nothing can interrupt
// that call if one of them fails.
std::shared_ptr<Communicator> open_communicator(const Communicator& comm, std::int64_t count, const Options& options,
                                                const std::map<std::int64_t, Layer>& given) {
  CollectiveCall call("LayerParallel", comm.id());
  Signature signature("LayerParallel");
  signature.add(count).add(options.replicated ? 1 : 0).add(options.relinearize ? 1 : 0).add(describe(options.forms));
  signature.add(static_cast<std::int64_t>(options.solver)).add(options.micro_batches);
  call.check([&] {
    TORCH_CHECK_VALUE(options.micro_batches >= 0, "weft: expected micro_batches to be at least 1, got ",
                      options.micro_batches);
    const Plan plan = plan_for(comm, count, options);
    signature.add(static_cast<std::int64_t>(plan.forward().signature()));
    signature.add(static_cast<std::int64_t>(plan.adjoint().signature()));
    require_layers(plan, comm.rank(), given);
  });
  call.agree(signature, 0, [&] { return describe(count, options); });
  return Communicator::over(comm.origin(), kName);
}

std::shared_ptr<Communicator> reversed(Communicator& communicator) {
  return Communicator::adopt(communicator.origin().split(0, communicator.size() - 1 - communicator.rank()));
}

}  // namespace

LayerParallel::Implementation::Implementation(const std::shared_ptr<Communicator>& comm, std::int64_t count,
                                              std::map<std::int64_t, Layer> given, SharedCopies shared_copies,
                                              const Options& how)
    : communicator(open_communicator(*comm, count, how, given)),
      options(how),
      plan(plan_for(*comm, count, how)),
      layers(plan, comm->rank(), std::move(given)),
      forward_solver(plan.forward(), communicator),
      adjoint_solver(plan.adjoint(), reversed(*communicator)),
      transport(communicator) {
  shared.set(std::move(shared_copies));
  index_parameters();
}

void LayerParallel::Implementation::index_parameters() {
  parameters = {};
  const partition::Range own = plan.layers_of(communicator->rank());
  for (std::int64_t number = own.begin; number < own.end; ++number) parameters.add(number, layers[number].parameters);
}

LayerParallel::LayerParallel(const std::shared_ptr<Communicator>& comm, const std::vector<Layer>& layers,
                             const Options& options)
    : LayerParallel(comm, static_cast<std::int64_t>(layers.size()), by_number(layers),
                    find_shared(*comm, options.tf, layers), with_forms(options, layers)) {}

LayerParallel::LayerParallel(const std::shared_ptr<Communicator>& comm, std::int64_t count,
                             std::map<std::int64_t, Layer> layers, SharedCopies shared, const Options& options)
    : implementation_(std::make_shared<Implementation>(comm, count, std::move(layers), std::move(shared), options)) {}

LayerParallel::~LayerParallel() = default;
LayerParallel::LayerParallel(LayerParallel&&) noexcept = default;
LayerParallel& LayerParallel::operator=(LayerParallel&&) noexcept = default;

Tensors LayerParallel::forward(const Tensors& x, const Tensors& extras, PassFunctions functions) {
  return implementation_->forward(x, extras, std::move(functions), implementation_->output_request());
}

at::Tensor LayerParallel::forward(const at::Tensor& x, const Tensors& extras) {
  return forward(x.defined() ? Tensors{x} : Tensors(), extras).front();
}

const Tensors& LayerParallel::parameters() const { return implementation_->parameters.unique; }
const Communicator& LayerParallel::communicator() const { return *implementation_->communicator; }
const Plan& LayerParallel::plan() const { return implementation_->plan; }
const Options& LayerParallel::options() const { return implementation_->options; }
const Statistics& LayerParallel::statistics() const { return implementation_->statistics; }

void LayerParallel::set_solvers(const multigrid::Options& forward, const multigrid::Options& backward) {
  implementation_->options.forward = forward;
  implementation_->options.backward = backward;
}

void LayerParallel::release_states() {
  implementation_->forward_solver.release();
  implementation_->points.clear();
}

std::vector<std::pair<std::int64_t, Tensors>> LayerParallel::states() const {
  const auto& solver = implementation_->forward_solver;
  const auto& kept = implementation_->points;
  std::vector<std::pair<std::int64_t, Tensors>> result(kept.begin(), kept.end());
  if (!result.empty() || implementation_->options.solver == SolverKind::kPipeline) return result;
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

void LayerParallel::rebind_shared(SharedCopies copies) { implementation_->shared.set(std::move(copies)); }

}  // namespace weft::layer_parallel
