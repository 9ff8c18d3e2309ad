// Input that must be equal on all ranks: the experiment, and paths that rank 0 chooses.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/experiment/file/load.h"
#include "weft/mpi/communicator.h"

namespace weft::experiment {

// Reads the experiment on every rank and compares the results, since hosts may have different files at the same path.
// Collective. Throws on all ranks if any rank cannot read the file or if the files differ.
[[nodiscard]] ResolvedExperiment resolve_on_all_ranks(const std::filesystem::path& file,
                                                      const std::vector<std::string>& overrides,
                                                      const CommunicatorPtr& world);

// Returns rank 0's text on all ranks. Collective.
[[nodiscard]] std::string broadcast_text(const std::string& text, const CommunicatorPtr& world);

}  // namespace weft::experiment
