// What a run must have as it was begun to go on: its images and their order, and the stages of training behind it.
#pragma once

#include <vector>

#include "weft/experiment/checkpoint_index.h"
#include "weft/experiment/progress.h"

namespace weft::experiment {

struct Experiment;
struct Stage;

// The facts of a checkpoint of this training, without its tensors and its progress.
[[nodiscard]] CheckpointIndex begun_with(const Experiment& experiment, const std::vector<Stage>& stages,
                                         std::int64_t batches);

// Where a run of the facts `now` goes on from a checkpoint's index. Throws ExperimentError where that would be another
// training: other images in a step, or other stages up to the one that it was in. The last stage's epochs may change:
// more of them go on where all were done, with fewer than are done nothing is left to do. What an older checkpoint does
// not tell is not compared.
[[nodiscard]] Progress continued(const CheckpointIndex& then, const CheckpointIndex& now);

}  // namespace weft::experiment
