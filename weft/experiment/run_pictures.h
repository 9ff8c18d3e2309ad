// The pictures of a run: reconstructions when pre-training ends; filters and optimal stimuli of the finished network.
#pragma once

#include <filesystem>

#include "weft/data/loader.h"
#include "weft/experiment/reporter.h"
#include "weft/experiment/training.h"

namespace weft::experiment {

// Filters, and optimal stimuli where the model asks for them, into pictures/. Collective; the first rank writes.
void write_run_pictures(const std::filesystem::path& run, const Experiment& experiment, const Mesh& mesh,
                        const Network& network, data::Loader& train, Reporter& reporter);

// When the last filter was pretrained, as far as the model asks for them: its decoders' reconstructions, and how well
// the best unit of each class tells training and test images. Later training changes filters and leaves decoders.
void write_pretraining_pictures(const std::filesystem::path& run, const Experiment& experiment, const Mesh& mesh,
                                const Network& network, const Training& training, data::Loader& train,
                                data::Loader& test, Reporter& reporter);

}  // namespace weft::experiment
