// The losses of LayerParallel: multigrid_loss() computes gradients at once, as the pipeline does.
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "weft/collective/autograd/call.h"
#include "weft/layer_parallel/network_implementation.h"
#include "weft/mpi/agreement.h"

namespace weft::layer_parallel {
namespace {

// Collective. Calls work on this rank if `mine`. If it throws on any rank, all ranks throw.
template <class Work>
void run_on_all(Communicator& communicator, bool mine, Work&& work) {
  std::optional<mpi::Failure> failure;
  std::exception_ptr cause;
  try {
    if (mine) work();
  } catch (const std::exception& error) {
    failure = {collective::message_of(error), mpi::Failure::Kind::kUserError};
    cause = std::current_exception();
  }
  const auto shared = mpi::share_failure(communicator, "the loss of LayerParallel", failure);
  if (!shared) return;
  const std::string text = "layer_parallel: the loss failed: " + shared->text;
  if (cause == nullptr) throw PipelineError(text);
  try {
    std::rethrow_exception(cause);
  } catch (...) {
    throw PipelineError(text);  // nests the exception being handled
  }
}

}  // namespace

Tensors LayerParallel::Implementation::multigrid_loss(const Tensors& x, ForwardPass& pass, const LossFunction& loss,
                                                      Tensors& inputs, Tensors& gradients) {
  const Tensors y = solve(x, pass, true);
  // The function follows the pass, so it uses the numbers that follow those of the pass.
  if (std::exchange(pass.used_random_numbers, false)) draw_pass_seed();
  LossGradient found{.loss = at::zeros({}), .output_gradient = y, .leaves = {}, .leaf_gradients = {}};
  const std::int64_t rows = y.front().dim() > 0 ? y.front().size(0) : 0;
  run_on_all(*communicator, has_input(), [&] { found = differentiate_loss(loss, y, {0, rows}, true); });
  const c10::AutoGradMode no_graph(false);
  gradients = propagate_gradients(pass, found.output_gradient, false);
  inputs.insert(inputs.end(), found.leaves.begin(), found.leaves.end());
  gradients.insert(gradients.end(), found.leaf_gradients.begin(), found.leaf_gradients.end());
  return {found.loss};
}

void LayerParallel::Implementation::record_loss(const Tensors& inputs, Tensors& loss, Tensors gradients, bool on_tape) {
  LossAdjoint adjoint{shared_from_this(), std::make_shared<Tensors>(std::move(gradients))};
  collective::record(kName, communicator, inputs, loss, std::move(adjoint), on_tape);
}

at::Tensor LayerParallel::loss(const Tensors& x, const LossFunction& function, const Tensors& extras,
                               PassFunctions functions) {
  const Options& options = implementation_->options;
  TORCH_CHECK_VALUE(!options.replicated,
                    "weft: LayerParallel::loss supports no replication; apply the loss to the output of forward()");
  const PassRequest request{.solver = SolverKind::kPipeline, .micro_batches = options.micro_batches, .loss = function};
  return implementation_->forward(x, extras, std::move(functions), request).front();
}

DifferentiatedLoss LayerParallel::loss_gradients(const Tensors& x, const LossFunction& function, SolverKind solver,
                                                 const Tensors& extras, PassFunctions functions) {
  const Options& options = implementation_->options;
  TORCH_CHECK_VALUE(!options.replicated, "weft: LayerParallel::loss_gradients supports no replication");
  TORCH_CHECK_VALUE(solver == SolverKind::kPipeline || options.solver == solver,
                    "weft: LayerParallel::loss_gradients: this network is a pipeline and has no multigrid levels");
  TORCH_CHECK(c10::GradMode::is_enabled(), "weft: LayerParallel::loss_gradients needs gradients to be on");
  DifferentiatedLoss result;
  const PassRequest request{.solver = solver, .micro_batches = 1, .loss = function, .gradients = &result};
  const Statistics before = implementation_->statistics;
  static_cast<void>(implementation_->forward(x, extras, std::move(functions), request));
  if (solver != options.solver) implementation_->statistics = before;
  return result;
}

at::Tensor LayerParallel::record(DifferentiatedLoss loss) {
  Tensors results{loss.loss.detach().clone()};
  implementation_->record_loss(loss.inputs, results, std::move(loss.gradients), /*on_tape=*/true);
  return results.front();
}

}  // namespace weft::layer_parallel
