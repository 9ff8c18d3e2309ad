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

// Stage s starts with S - s forwards; then each backward follows one forward. While the gradient of a micro-batch
// travels from the last stage to the first, the last stage continues with further micro-batches. The first stage
// computes their losses before it starts the backward of that micro-batch; otherwise the last stage would wait for
// them. The number assumes that a backward takes twice as long as a forward.
std::vector<PipelineAction> one_forward_one_backward(int stage, int stages, std::int64_t micro_batches) {
  const std::int64_t ahead = std::min<std::int64_t>(stages - stage, micro_batches);
  std::int64_t losses = stage == 0 ? 0 : micro_batches;  // only the first stage computes losses
  std::vector<PipelineAction> actions;
  const auto compute_losses = [&](std::int64_t count) {
    for (; losses < std::min(count, micro_batches); ++losses) actions.push_back({Kind::kLoss, losses});
  };
  for (std::int64_t m = 0; m < ahead; ++m) actions.push_back({Kind::kForward, m});
  compute_losses(1);
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    if (m + ahead < micro_batches) actions.push_back({Kind::kForward, m + ahead});
    compute_losses(m + 2 * (stages - 1) / 3 + 2);
    actions.push_back({Kind::kBackward, m});
  }
  return actions;
}

}  // namespace weft::layer_parallel
