// The order of a rank's work in a pipeline of micro-batches. Pure arithmetic.
//
// Stage s is rank s. Each rank executes its actions in order, so an order is correct if no action waits for a later
// one. The first stage also computes the loss, because its rank holds the targets and the layers after the network.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::layer_parallel {

struct PipelineAction {
  enum class Kind : std::int8_t {
    kForward,   // evaluate this stage's layers
    kOutput,    // first stage: take the output of the network
    kLoss,      // first stage: take the output, compute the loss and return its gradient to the last stage
    kGradient,  // first stage: send the gradient of the output to the last stage
    kBackward,  // propagate gradients through this stage's layers
  };
  Kind kind;
  std::int64_t micro_batch;
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

// All forward work of a pass whose loss is computed later. `outputs`: the first stage takes the outputs.
[[nodiscard]] std::vector<PipelineAction> forward_schedule(int stage, std::int64_t micro_batches, bool outputs);
// All backward work after forward_schedule(). `gradients`: the first stage sends the gradients of the outputs.
[[nodiscard]] std::vector<PipelineAction> backward_schedule(int stage, std::int64_t micro_batches, bool gradients);
// One forward, one backward (1F1B): a stage starts backward work as soon as possible, so that stage s of S holds the
// graphs of at most S - s + 1 micro-batches.
[[nodiscard]] std::vector<PipelineAction> one_forward_one_backward(int stage, int stages, std::int64_t micro_batches);

}  // namespace weft::layer_parallel
