// Checkpoints of a run. Each rank writes its own part; the folder becomes visible when all parts are on disk.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "weft/experiment/layers/mesh.h"
#include "weft/experiment/layers/parameter.h"
#include "weft/experiment/run/checkpoint_index.h"

namespace weft::experiment {

// Writes `checkpoints/step-00000120` with index.json and one safetensors file per rank. Writes to a hidden folder,
// syncs it to disk, and renames it. Keeps the two latest checkpoints. Collective. Throws on all ranks if any rank
// fails.
void save_checkpoint(const std::filesystem::path& run, const std::vector<Parameter>& state,
                     const CheckpointIndex& facts, std::int64_t step, const Mesh& mesh);

// Returns the latest complete checkpoint of a run.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& run);

// Restores the values of `state` from a checkpoint that any number of ranks wrote. Throws CheckpointError if a tensor
// is missing or has another shape or type; in that case, `state` is unchanged.
void load_checkpoint(const std::filesystem::path& folder, const CheckpointIndex& index,
                     const std::vector<Parameter>& state);

}  // namespace weft::experiment
