#include "weft/experiment/folder_claim.h"

#include "weft/experiment/checkpoint.h"
#include "weft/experiment/problems.h"

namespace weft::experiment {

namespace fs = std::filesystem;

void require_unused(const fs::path& folder) {
  const std::string got = "expected a new folder for the run, got " + folder.string();
  if (latest_checkpoint(folder).has_value() || fs::exists(folder / "metrics.jsonl")) {
    throw ExperimentError(got + ", which has one; go on with it by --resume, or name another by --out");
  }
  for (const char* file : {"config.yaml", "run.json", "split.json", "trace.json"}) {
    if (!fs::exists(folder / file)) continue;
    throw ExperimentError(got + ", whose " + file + " it would replace; name another by --out, or move that file");
  }
}

}  // namespace weft::experiment
