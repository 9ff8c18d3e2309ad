// Checks that a run can resume: it must have the same images in the same order, and the same finished stages.
#pragma once

#include <vector>

#include "weft/experiment/run/checkpoint_index.h"
#include "weft/experiment/training/progress.h"
#include "weft/experiment/training/stage.h"

namespace weft::experiment {

struct Experiment;

// Returns the facts that a checkpoint stores about its training, without tensors and progress.
[[nodiscard]] CheckpointIndex checkpoint_facts(const Experiment& experiment, const std::vector<Stage>& stages,
                                               std::int64_t batches);

// Returns the position at which a run with the facts `now` resumes from a checkpoint with the index `then`. Throws
// ExperimentError if the images, their order, or a stage up to the current one differ. The number of epochs of the last
// stage may change: additional epochs are trained, and with fewer epochs the run is finished. Facts that an older
// checkpoint does not contain are not compared.
[[nodiscard]] Progress resume_point(const CheckpointIndex& then, const CheckpointIndex& now);

}  // namespace weft::experiment
