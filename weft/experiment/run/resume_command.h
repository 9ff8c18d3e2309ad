// The shell command that continues a stopped run.
#pragma once

#include <filesystem>
#include <string>

#include "weft/experiment/run/run.h"

namespace weft::experiment {

// Returns `weft train --resume ...` with the options of the stopped run, quoted for a POSIX shell.
[[nodiscard]] std::string resume_command(const RunOptions& options, int ranks, const std::filesystem::path& folder);

}  // namespace weft::experiment
