// The pictures of a finished run: filters, reconstructions, optimal stimuli.
#pragma once

#include <filesystem>

#include "weft/data/loader.h"
#include "weft/experiment/reporter.h"
#include "weft/experiment/training.h"

namespace weft::experiment {

// Whatever of them the model has and asks for, into pictures/. Collective; the first rank writes.
void write_run_pictures(const std::filesystem::path& run, const Experiment& experiment, const Mesh& mesh,
                        const Network& network, const Training& training, data::Loader& train, data::Loader& test,
                        Reporter& reporter);

}  // namespace weft::experiment
