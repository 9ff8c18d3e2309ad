// Cells of boxes as tensors: where they lie, and how borders reverse or repeat them.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/partition/exchange_list.h"

namespace weft::spatial {

// The cells of `box` in a tensor whose last dimensions are those of `origin`, as a view.
[[nodiscard]] at::Tensor region(at::Tensor x, const partition::Box& box, const partition::Box& origin);

// A piece's cells as they lie in the needed box: reversed or repeated where a border says so.
[[nodiscard]] at::Tensor unfolded(at::Tensor cells, const partition::Piece& piece);
// The adjoint: reversed back, and summed where a cell was repeated.
[[nodiscard]] at::Tensor folded(at::Tensor cells, const partition::Piece& piece);

// Uninitialised, of the type and on the device of `like`; host memory is pooled.
[[nodiscard]] at::Tensor fresh(at::IntArrayRef sizes, const at::Tensor& like);

}  // namespace weft::spatial
