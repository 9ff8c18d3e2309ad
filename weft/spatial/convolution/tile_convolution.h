// Convolution of a tile while its halo is in flight, and of the halo when it has arrived.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "weft/spatial/convolution/kernel.h"
#include "weft/spatial/convolution/rim.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {

// `kernel` is that of the padded tile; halo.rim must not be null. Backward sends the halo's gradient first. Returns
// nullopt on all ranks if `x` carries a forward-mode derivative, which only padded convolution supports.
// Collective.
[[nodiscard]] OptionalTensor tile_convolution(const DistTensor& x, const Halo& halo, const Kernel& kernel);

}  // namespace weft::spatial
