#include "weft/layer_parallel/pipeline.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <utility>

#include "weft/collective/autograd/call.h"
#include "weft/layer_parallel/loss_gradient.h"
#include "weft/layer_parallel/micro_batches.h"

namespace weft::layer_parallel {
namespace {

using Kind = PipelineAction::Kind;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kForward:
    case Kind::kOutput:
      return "forward";
    case Kind::kLoss:
      return "the loss";
    case Kind::kGradient:
    case Kind::kBackward:
      break;
  }
  return "backward";
}

}  // namespace

Pipeline::Pipeline(const Plan& plan, LayerEvaluator& evaluator, RandomScope& random, multigrid::Transport& transport,
                   Codec codec, PipelineWork& work)
    : plan_(plan),
      evaluator_(evaluator),
      random_(random),
      transport_(transport),
      codec_(std::move(codec)),
      work_(work),
      rank_(transport.rank()),
      own_(plan.layers_of(rank_)) {
  statistics_.iterations = 1;
  statistics_.converged = true;
  statistics_.steps = {0};
}

multigrid::Statistics Pipeline::run(const std::vector<PipelineAction>& actions) {
  try {
    for (const PipelineAction& action : actions) execute(action);
    transport_.finish();
    if (transport_.end(failed_)) throw_failure();
  } catch (const PipelineError&) {
    throw;
  } catch (const std::exception& error) {
    transport_.abandon(error.what());  // the communication failed: other ranks may still wait for this one
    throw;
  } catch (...) {
    transport_.abandon("an exception of unknown type");
    throw;
  }
  return statistics_;
}

void Pipeline::execute(const PipelineAction& action) {
  activity_ = std::string(name_of(action.kind)) + " failed on rank " + std::to_string(rank_) + ", micro-batch " +
              std::to_string(action.micro_batch);
  MicroBatch& batch = work_.micro_batches[static_cast<std::size_t>(action.micro_batch)];
  const int last = plan_.last_rank();
  switch (action.kind) {
    case Kind::kForward:
      return forward(batch, action.micro_batch);
    case Kind::kOutput:
      if (last != rank_) batch.output = receive(last, kOutputs);
      return;
    case Kind::kLoss:
      if (last != rank_) batch.output = receive(last, kOutputs);
      attempt([&] { compute_loss(batch, action.micro_batch); });
      if (!work_.recording) return;  // no backward work waits for a gradient
      [[fallthrough]];
    case Kind::kGradient:
      if (last != rank_) send(last, kOutputGradients, std::exchange(batch.output_gradient, {}));
      return;
    case Kind::kBackward:
      return backward(batch);
  }
}

void Pipeline::forward(MicroBatch& batch, std::int64_t number) {
  Tensors state = rank_ == 0 ? batch.input : receive(rank_ - 1, kStates);
  attempt([&] { state = evaluate_layers(batch, number, std::move(state)); });
  if (rank_ != plan_.last_rank()) return send(rank_ + 1, kStates, state);
  attempt([&] { require_rows_kept(state, batch.rows); });
  if (rank_ == 0 || !work_.outputs_to_first) {
    batch.output = std::move(state);
  } else {
    send(0, kOutputs, state);
  }
}

Tensors Pipeline::evaluate_layers(MicroBatch& batch, std::int64_t number, Tensors x) {
  random_.set_micro_batch(number);
  if (work_.begin_micro_batch) work_.begin_micro_batch(batch.rows, work_.micro_batches.back().rows.end);
  if (rank_ == 0 && work_.keep_point) work_.keep_point(0, x);
  for (std::int64_t layer = own_.begin; layer < own_.end; ++layer) {
    ++statistics_.steps.front();
    if (work_.recording) {
      Recorded& recorded = batch.records[layer] = evaluator_.record(layer, x, plan_.dt(), Buffers::kKeep);
      x = evaluator_.next(layer, recorded, plan_.dt());
    } else {
      x = evaluator_.next(layer, x, plan_.dt(), Buffers::kKeep);
    }
    if (work_.keep_point) work_.keep_point(layer + 1, x);
    transport_.progress();
  }
  return x;
}

void Pipeline::compute_loss(MicroBatch& batch, std::int64_t number) {
  random_.set_micro_batch(number);
  random_.begin(plan_.layers());  // the loss may contain random layers; its numbers follow those of the last layer
  LossGradient found = differentiate_loss(work_.loss, std::exchange(batch.output, {}), batch.rows, work_.recording);
  loss_ = loss_.defined() ? loss_.add(found.loss) : found.loss;
  batch.output_gradient = std::move(found.output_gradient);
  for (std::size_t i = 0; i < found.leaves.size(); ++i) {
    add_gradient(found.leaves[i], found.leaf_gradients[i], loss_leaves_, loss_gradients_);
  }
}

void Pipeline::backward(MicroBatch& batch) {
  const bool last = rank_ == plan_.last_rank();
  Tensors gradient = std::exchange(batch.output_gradient, {});
  if (!last) gradient = receive(rank_ + 1, kGradients);
  if (last && rank_ != 0 && work_.outputs_to_first) gradient = receive(0, kOutputGradients);
  attempt([&] {
    for (std::int64_t layer = own_.end - 1; layer >= own_.begin; --layer) {
      ++statistics_.steps.front();
      gradient = adjoint_step(evaluator_, layer, batch.records.at(layer), gradient, plan_.dt(), &work_.weights);
      if (!work_.weights.keep_graph) batch.records.erase(layer);
      transport_.progress();
    }
  });
  if (rank_ > 0) {
    send(rank_ - 1, kGradients, gradient);
  } else {
    batch.input_gradient = std::move(gradient);
  }
}

Tensors Pipeline::receive(int source, Channel channel) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<multigrid::Packed> message = transport_.receive(source, channel, std::nullopt)->wait();
  statistics_.seconds_waiting += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!message) {
    failed_ = true;
    return {};
  }
  return codec_.unpack(*std::move(message));
}

void Pipeline::send(int dest, Channel channel, const Tensors& state) {
  std::optional<multigrid::Packed> message;
  attempt([&] { message = codec_.pack(state); });
  ++statistics_.messages_sent;
  if (message) statistics_.bytes_sent += static_cast<std::int64_t>(message->bytes.size());
  transport_.send(dest, channel, std::move(message), std::nullopt);
}

template <class Work>
void Pipeline::attempt(Work&& work) {
  if (failed_) return;
  const auto note = [&](const std::string& text) {
    failed_ = true;
    fault_ = activity_ + ": " + text;
    cause_ = std::current_exception();
  };
  try {
    work();
  } catch (const std::exception& error) {
    note(collective::message_of(error));
  } catch (...) {
    note("an exception of unknown type");
  }
}

void Pipeline::throw_failure() {
  for (const std::string& text : transport_.gather(fault_)) {
    if (text.empty()) continue;
    if (cause_ == nullptr) throw PipelineError("layer_parallel: " + text);
    try {
      std::rethrow_exception(cause_);
    } catch (...) {
      throw PipelineError("layer_parallel: " + text);  // nests the exception being handled
    }
  }
  throw PipelineError("layer_parallel: a rank failed without a cause");
}

}  // namespace weft::layer_parallel
