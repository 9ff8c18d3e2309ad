// Pipeline: this rank's part of an exact pass in which micro-batches flow from rank to rank.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/layer_parallel/adjoint_step.h"
#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/loss_gradient.h"
#include "weft/layer_parallel/pipeline_schedule.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/problems.h"
#include "weft/layer_parallel/states.h"
#include "weft/mpi/error.h"
#include "weft/multigrid/statistics.h"
#include "weft/multigrid/transport.h"

namespace weft::layer_parallel {

// A layer or the loss threw. All ranks throw it with the same text; the failing rank nests the original exception.
class PipelineError : public mpi::SharedFailure, public std::nested_exception {
 public:
  using mpi::SharedFailure::SharedFailure;
};

// A micro-batch on this rank. Each member exists only while an action still needs it.
struct MicroBatch {
  partition::Range rows;
  Records records;          // evaluations of this rank's layers, with their graphs
  Tensors input;            // rank 0
  Tensors output;           // of the network: on the last rank until it is sent, then on rank 0
  Tensors output_gradient;  // rank 0, and the last rank if both are the same
  Tensors input_gradient;   // rank 0
};

struct PipelineWork {
  std::vector<MicroBatch> micro_batches;
  bool recording = false;
  bool outputs_to_first = true;  // otherwise the last rank keeps the outputs and starts from the gradients it holds
  std::function<void(partition::Range rows, std::int64_t total)> begin_micro_batch;  // see PassFunctions
  LossFunction loss;
  WeightGradients weights;  // for backward
  // Called with the state of each of this rank's points; may be empty.
  std::function<void(std::int64_t point, const Tensors& state)> keep_point;
};

class Pipeline {
 public:
  Pipeline(const Plan& plan, LayerEvaluator& evaluator, RandomScope& random, multigrid::Transport& transport,
           Codec codec, PipelineWork& work);

  // Collective; each rank passes its own schedule. Throws PipelineError on all ranks if a layer or the loss throws.
  multigrid::Statistics run(const std::vector<PipelineAction>& actions);

  // The sum of the losses, and the gradients of the leaves that the loss uses besides the output; on rank 0.
  [[nodiscard]] const at::Tensor& loss() const noexcept { return loss_; }
  [[nodiscard]] const Tensors& loss_leaves() const noexcept { return loss_leaves_; }
  [[nodiscard]] const Tensors& loss_gradients() const noexcept { return loss_gradients_; }

 private:
  // Message kinds, as the levels of the transport: messages of one kind between two ranks stay in order.
  enum Channel : int { kStates, kOutputs, kOutputGradients, kGradients };

  void execute(const PipelineAction& action);
  void forward(MicroBatch& batch, std::int64_t number);
  void backward(MicroBatch& batch);
  void compute_loss(MicroBatch& batch, std::int64_t number);
  [[nodiscard]] Tensors evaluate_layers(MicroBatch& batch, std::int64_t number, Tensors x);
  // An empty state stands for a failure notice.
  [[nodiscard]] Tensors receive(int source, Channel channel);
  void send(int dest, Channel channel, const Tensors& state);
  // Runs work unless this rank has failed; afterwards it has if the work throws.
  template <class Work>
  void attempt(Work&& work);
  [[noreturn]] void throw_failure();

  const Plan& plan_;
  LayerEvaluator& evaluator_;
  RandomScope& random_;
  multigrid::Transport& transport_;
  Codec codec_;
  PipelineWork& work_;
  int rank_;
  partition::Range own_;
  multigrid::Statistics statistics_;
  at::Tensor loss_;
  Tensors loss_leaves_;
  Tensors loss_gradients_;
  bool failed_ = false;
  std::string activity_;  // for the text of an error
  std::string fault_;     // the text of this rank's error
  std::exception_ptr cause_;
};

}  // namespace weft::layer_parallel
