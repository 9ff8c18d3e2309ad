#include "weft/layer_parallel/pipeline_schedule.h"

#include <algorithm>

namespace weft::layer_parallel {

using Kind = PipelineAction::Kind;

std::vector<PipelineAction> forward_schedule(int stage, std::int64_t micro_batches, bool outputs) {
  std::vector<PipelineAction> actions;
  for (std::int64_t m = 0; m < micro_batches; ++m) actions.push_back({Kind::kForward, m});
  for (std::int64_t m = 0; outputs && stage == 0 && m < micro_batches; ++m) actions.push_back({Kind::kOutput, m});
  return actions;
}

std::vector<PipelineAction> backward_schedule(int stage, std::int64_t micro_batches, bool gradients) {
  std::vector<PipelineAction> actions;
  for (std::int64_t m = 0; gradients && stage == 0 && m < micro_batches; ++m) actions.push_back({Kind::kGradient, m});
  for (std::int64_t m = 0; m < micro_batches; ++m) actions.push_back({Kind::kBackward, m});
  return actions;
}

// The loss is one more stage, S, on the rank of the first stage. Stage s starts with S - s forwards; then each backward
// follows one forward. The first stage must not make the last one wait for a loss: while the gradient of a micro-batch
// travels through S stages, the outputs of other micro-batches arrive. A stage takes one forward and one backward from
// one output to the next, and a backward takes about twice as long as a forward, so 2/3 S outputs arrive.
std::vector<PipelineAction> one_forward_one_backward(int stage, int stages, std::int64_t micro_batches) {
  const std::int64_t ahead = std::min<std::int64_t>(stages - stage, micro_batches);
  const std::int64_t losses_ahead = std::min<std::int64_t>(2 * stages / 3, micro_batches);
  std::vector<PipelineAction> actions;
  for (std::int64_t m = 0; m < ahead; ++m) actions.push_back({Kind::kForward, m});
  for (std::int64_t m = 0; stage == 0 && m < losses_ahead; ++m) actions.push_back({Kind::kLoss, m});
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    if (m + ahead < micro_batches) actions.push_back({Kind::kForward, m + ahead});
    if (stage == 0 && m + losses_ahead < micro_batches) actions.push_back({Kind::kLoss, m + losses_ahead});
    actions.push_back({Kind::kBackward, m});
  }
  return actions;
}

}  // namespace weft::layer_parallel
