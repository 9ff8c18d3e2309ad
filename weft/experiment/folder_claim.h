// The right to work in a run's folder: one job at a time, and nobody's files are replaced.
#pragma once

#include <filesystem>

#include "weft/files/file_descriptor.h"

namespace weft::experiment {

class FolderClaim {
 public:
  FolderClaim() = default;
  // Makes the folder where there is none. Throws ExperimentError for what can be no folder, for files that a new run
  // would replace, and where another job has the claim. That one gets some seconds: it may have been killed just now,
  // and the system ends its claim with its process.
  FolderClaim(const std::filesystem::path& folder, bool resume);

 private:
  files::FileDescriptor lock_;
};

}  // namespace weft::experiment
