// The command `weft train`.
#pragma once

#include <optional>

#include "weft/experiment/run/run.h"

namespace weft::command {

// Trains in this process, or starts `ranks` ranks with mpirun unless a launcher started this process. Returns the exit
// status. `argc` and `argv` are the arguments of main().
[[nodiscard]] int train(const experiment::RunOptions& options, std::optional<int> ranks, int argc, char** argv);

}  // namespace weft::command
