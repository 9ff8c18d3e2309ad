// The convolution of a tile by itself while its halo travels, and of the halo when that has come.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "weft/spatial/halo.h"
#include "weft/spatial/kernel.h"
#include "weft/spatial/rim.h"

namespace weft::spatial {

// `kernel` as it is for the padded tile; halo.rim must be there. In backward the halo's gradient leaves before anything
// else is computed. Nothing where a forward-mode derivative is carried, which the padded way knows: on all ranks alike.
// Collective.
[[nodiscard]] std::optional<at::Tensor> tile_convolution(const DistTensor& x, const Halo& halo, const Kernel& kernel);

}  // namespace weft::spatial
