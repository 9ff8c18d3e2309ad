// Writes the pictures of a run: reconstructions after pre-training; filters and optimal stimuli after training.
#pragma once

#include <filesystem>

#include "weft/data/loader.h"
#include "weft/experiment/run/reporter.h"
#include "weft/experiment/training/training.h"

namespace weft::experiment {

// Writes filters, and optimal stimuli if the model requests them, to pictures/. Rank 0 writes. Collective.
void write_run_pictures(const std::filesystem::path& run, const Experiment& experiment, const Mesh& mesh,
                        const Network& network, data::Loader& train, Reporter& reporter);

// Writes the reconstructions of the decoders and reports how well the best unit separates each class, if the model
// requests them. Call it when pre-training ends: later training changes the filters but not the decoders. Collective.
void write_pretraining_pictures(const std::filesystem::path& run, const Experiment& experiment, const Mesh& mesh,
                                const Network& network, const Training& training, data::Loader& train,
                                data::Loader& test, Reporter& reporter);

}  // namespace weft::experiment
