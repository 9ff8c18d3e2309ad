// The report of `weft check`: the layers of an experiment and how ranks would share them. Starts no ranks.
#pragma once

#include <cstdint>
#include <string>

namespace weft::experiment {

struct Experiment;

// Returns a summary and a table of layers. Throws ExperimentError if `ranks` ranks cannot share the experiment.
[[nodiscard]] std::string check_report(const Experiment& experiment, std::int64_t ranks);

}  // namespace weft::experiment
