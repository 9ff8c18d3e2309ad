// A linear layer over a whole field in tiles: each rank has the columns of its tile, and nobody gathers the field.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// What Linear(flatten(x)) gives, on every rank. `weight` is this rank's part, [outputs, leading sizes..., tile...]; its
// gradient is this rank's alone. The result counts once (see share.h). Moves the outputs only. Collective.
[[nodiscard]] at::Tensor linear(const DistTensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace weft::spatial
