// The passes of LayerParallel with SolverKind::kPipeline.
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <string>
#include <tuple>
#include <utility>

#include "weft/layer_parallel/micro_batches.h"
#include "weft/layer_parallel/network_implementation.h"
#include "weft/layer_parallel/state_transfer.h"
#include "weft/mpi/fingerprint.h"

namespace weft::layer_parallel {
namespace {

// Ranks after the last one with layers have no stage.
std::vector<PipelineAction> only_for_stages(int rank, const Plan& plan, std::vector<PipelineAction> schedule) {
  return rank <= plan.last_rank() ? std::move(schedule) : std::vector<PipelineAction>();
}

template <class Member>
Tensors take_joined(std::vector<MicroBatch>& batches, Member member) {
  std::vector<Tensors> parts;
  for (MicroBatch& batch : batches) parts.push_back(std::exchange(batch.*member, {}));
  return join(parts);
}

}  // namespace

std::vector<MicroBatch> LayerParallel::Implementation::micro_batches_for(const StateLayout& input,
                                                                         std::int64_t requested) const {
  std::vector<MicroBatch> batches;
  for (const partition::Range rows : micro_batch_rows(input, requested, communicator->size())) {
    batches.emplace_back().rows = rows;
  }
  return batches;
}

// Prepares a forward pass, and the loss if it is set.
PipelineWork LayerParallel::Implementation::pipeline_work(const Tensors& x, ForwardPass& pass, bool recording) {
  pass.shapes = shapes;
  points.clear();
  PipelineWork work;
  work.micro_batches = micro_batches_for(pass.shapes.input, pass.requested_micro_batches);
  if (first()) {
    for (MicroBatch& batch : work.micro_batches) batch.input = rows_of(detached(x), batch.rows);
  }
  work.recording = recording;
  work.begin_micro_batch = pass.functions.begin_micro_batch;
  if (options.keep_states) {
    work.keep_point = [this](std::int64_t point, const Tensors& state) { keep_point(point, state); };
  }
  return work;
}

Tensors LayerParallel::Implementation::pipeline_forward(const Tensors& x, ForwardPass& pass, bool recording) {
  PipelineWork work = pipeline_work(x, pass, recording);
  work.outputs_to_first = !options.replicated;
  RandomScope random(pass.seed, pass.device);
  LayerEvaluator evaluator(layers, random, pass.functions);
  Pipeline pipeline(plan, evaluator, random, transport, codec(pass), work);
  const auto count = static_cast<std::int64_t>(work.micro_batches.size());
  const int rank = communicator->rank();
  statistics.forward = pipeline.run(only_for_stages(rank, plan, forward_schedule(rank, count, work.outputs_to_first)));
  note_random_numbers(random, pass);
  Tensors y;
  if (rank == (options.replicated ? plan.last_rank() : 0)) y = take_joined(work.micro_batches, &MicroBatch::output);
  for (MicroBatch& batch : work.micro_batches) batch.input.clear();
  pass.micro_batches = std::move(work.micro_batches);
  if (options.replicated) return detached(broadcast_state(std::move(y), plan.last_rank(), codec(pass), *communicator));
  return zeros_like_output(std::move(y), pass);
}

Tensors LayerParallel::Implementation::pipeline_backward(const Tensors& gradients, ForwardPass& pass,
                                                         LayerEvaluator& evaluator, RandomScope& random,
                                                         WeightGradients weights) {
  PipelineWork work;
  // The graphs are freed below, unless another backward follows.
  work.micro_batches = weights.keep_graph ? pass.micro_batches : std::move(pass.micro_batches);
  pass.released = !weights.keep_graph;
  work.weights = std::move(weights);
  work.outputs_to_first = !options.replicated;
  const auto count = static_cast<std::int64_t>(work.micro_batches.size());
  const int rank = communicator->rank();
  transport.begin(mpi::Fingerprint("pipeline").add(count).value(), false,
                  "backward of a pipeline of " + std::to_string(count) + " micro-batches");
  const Tensors at_end = options.replicated ? mean_over_ranks(gradients, *communicator) : gradients;
  if (rank == (options.replicated ? plan.last_rank() : 0)) {
    for (MicroBatch& batch : work.micro_batches) batch.output_gradient = rows_of(at_end, batch.rows);
  }
  Pipeline pipeline(plan, evaluator, random, transport, codec(pass), work);
  statistics.backward =
      pipeline.run(only_for_stages(rank, plan, backward_schedule(rank, count, work.outputs_to_first)));
  return first() ? take_joined(work.micro_batches, &MicroBatch::input_gradient) : Tensors();
}

Tensors LayerParallel::Implementation::pipeline_loss(const Tensors& x, ForwardPass& pass, bool recording,
                                                     const LossFunction& loss, Tensors& inputs, Tensors& gradients) {
  PipelineWork work = pipeline_work(x, pass, recording);
  work.loss = loss;
  GradientSums sums(parameters, pass.extras.size());
  const Tensors& extras = pass.functions.leaves.empty() ? pass.extras : pass.functions.leaves;
  work.weights = {&extras, false, [&](std::int64_t layer, const Tensors& found) { sums.add(layer, found); }};
  RandomScope random(pass.seed, pass.device);
  LayerEvaluator evaluator(layers, random, pass.functions);
  Pipeline pipeline(plan, evaluator, random, transport, codec(pass), work);
  const auto count = static_cast<std::int64_t>(work.micro_batches.size());
  const int rank = communicator->rank();
  auto schedule = one_forward_one_backward(rank, plan.last_rank() + 1, count);
  if (!recording) {
    std::erase_if(schedule, [](const auto& action) { return action.kind == PipelineAction::Kind::kBackward; });
  }
  statistics.forward = pipeline.run(only_for_stages(rank, plan, std::move(schedule)));
  note_random_numbers(random, pass);
  if (!recording) return {first() ? pipeline.loss() : at::zeros({})};
  shared.sum(parameters, sums.parameters, *communicator);
  if (first()) gradients = take_joined(work.micro_batches, &MicroBatch::input_gradient);
  gradients.insert(gradients.end(), sums.parameters.begin(), sums.parameters.end());
  gradients.insert(gradients.end(), sums.extras.begin(), sums.extras.end());
  const auto& [leaves, leaf_gradients] = std::tie(pipeline.loss_leaves(), pipeline.loss_gradients());
  inputs.insert(inputs.end(), leaves.begin(), leaves.end());
  gradients.insert(gradients.end(), leaf_gradients.begin(), leaf_gradients.end());
  return {first() ? pipeline.loss() : at::zeros({})};
}

variable_list LayerParallel::Implementation::LossAdjoint::operator()(OperationNode& /*node*/,
                                                                     variable_list&& scale) const {
  TORCH_CHECK(gradients != nullptr,
              "weft: the graph of this loss was freed by an earlier backward; pass retain_graph=True to the first "
              "backward");
  // The loss of rank 0 counts; its type is not known to the other ranks.
  const at::Tensor mine = scale.front().to(at::kDouble);
  const double factor = broadcast_state({mine}, 0, Codec(StateLayout::of({mine}), at::kCPU), *network->communicator)
                            .front()
                            .item<double>();
  variable_list scaled;
  for (const auto& gradient : *gradients) {
    scaled.push_back(gradient.defined() && factor != 1 ? at::mul(gradient, factor) : gradient);
  }
  return scaled;
}

}  // namespace weft::layer_parallel
