// A linear layer over a whole field in tiles. Each rank holds the columns of its tile; the field is not gathered.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Returns Linear(flatten(x)) on every rank. `weight` is this rank's part, [outputs, leading sizes..., tile...], with
// its own gradient. The gradient of the result counts once (see share.h). Moves only the outputs. Collective.
[[nodiscard]] at::Tensor linear(const DistTensor& x, const at::Tensor& weight, const OptionalTensor& bias);

}  // namespace weft::spatial
