// The normalisations of torch's C++ frontend as steps on tiles.
#pragma once

#include "weft/spatial/flow.h"

namespace weft::spatial {

// Null where the module is none.
[[nodiscard]] Run normalization_step(const ModulePtr& module);

}  // namespace weft::spatial
