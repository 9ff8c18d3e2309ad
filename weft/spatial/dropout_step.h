// Dropout of torch's C++ frontend as a step on tiles: the same masks whatever the split.
#pragma once

#include <cstdint>

#include "weft/spatial/flow.h"

namespace weft::spatial {

// Null where the module is none. Masks follow from `seed`, which must be the same on all ranks, and the number of the
// call.
[[nodiscard]] Run dropout_step(const ModulePtr& module, std::int64_t seed);

}  // namespace weft::spatial
