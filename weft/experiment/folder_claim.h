// Whether a run may have a folder: nobody's files are replaced.
#pragma once

#include <filesystem>

namespace weft::experiment {

// Throws ExperimentError for files that a new run would replace.
void require_unused(const std::filesystem::path& folder);

}  // namespace weft::experiment
