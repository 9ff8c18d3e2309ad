// Locks a run folder for one job, and refuses folders whose files a new run would overwrite.
#pragma once

#include <filesystem>

#include "weft/files/file_descriptor.h"

namespace weft::experiment {

class RunLock {
 public:
  RunLock() = default;
  // Creates the folder if necessary. Throws ExperimentError if the path is not a folder, if a new run would overwrite
  // files, or if another job holds the lock. Waits a few seconds for the lock, since the system releases the lock of a
  // killed job only when its process ends.
  RunLock(const std::filesystem::path& folder, bool resume);

 private:
  files::FileDescriptor lock_;
};

}  // namespace weft::experiment
