// One layer of torch's C++ frontend as a step on tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/spatial/flow.h"
#include "weft/spatial/region_step.h"

namespace weft::spatial {

struct LayerStep {
  std::string name;
  std::string kind;
  Run run;
  std::optional<RegionPart> part = std::nullopt;  // where the layer can be in a halo region
};

// Throws (NotImplementedError) naming the layer where it cannot be split. The step uses the module's own parameters.
// Masks of dropout follow from `seed`, which must be the same on all ranks.
[[nodiscard]] LayerStep step_of(const std::string& name, const ModulePtr& module, std::int64_t seed);

}  // namespace weft::spatial
