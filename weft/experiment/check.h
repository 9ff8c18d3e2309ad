// `weft check`: what an experiment's file describes, and how a number of ranks would share it. No ranks are started.
#pragma once

#include <cstdint>
#include <string>

namespace weft::experiment {

struct Experiment;

// The experiment in some lines and the table of its layers. Throws ExperimentError where it cannot be split so.
[[nodiscard]] std::string check_report(const Experiment& experiment, std::int64_t ranks);

}  // namespace weft::experiment
