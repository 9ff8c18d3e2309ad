// Layers of torch's C++ frontend that look at each cell by itself.
#pragma once

#include <functional>

#include "weft/spatial/flow.h"

namespace weft::spatial {

// The layer as a function, or none where it is no such layer.
[[nodiscard]] std::function<at::Tensor(const at::Tensor&)> elementwise_of(const ModulePtr& module);

}  // namespace weft::spatial
