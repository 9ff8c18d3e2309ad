// Checkpoints of a run: each rank writes what it has, and a folder appears only when all of it is on the disk.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "weft/experiment/checkpoint_index.h"
#include "weft/experiment/mesh.h"
#include "weft/experiment/parameter.h"

namespace weft::experiment {

// `checkpoints/step-00000120` with one safetensors file a rank and index.json. Written beside, brought to the disk and
// moved into place; the two latest stay. Collective; where a rank fails, all throw.
void save_checkpoint(const std::filesystem::path& run, const std::vector<Parameter>& state,
                     const CheckpointIndex& facts, std::int64_t step, const Mesh& mesh);

// The latest whole one of a run.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& run);

// Fills the parameters' values from a checkpoint that any number of ranks wrote. Throws CheckpointError naming a tensor
// that is absent or of another shape or type; then nothing was changed.
void load_checkpoint(const std::filesystem::path& folder, const CheckpointIndex& index,
                     const std::vector<Parameter>& state);

}  // namespace weft::experiment
