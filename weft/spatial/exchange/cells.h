// Views of the cells of boxes, and the reversal or repetition of cells at borders.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/partition/exchange_list.h"

namespace weft::spatial {

// Returns a view of the cells of `box` in a tensor whose last dimensions are those of `origin`.
[[nodiscard]] at::Tensor region(at::Tensor x, const partition::Box& box, const partition::Box& origin);

// Returns the cells of a piece in the order of the needed box. A border may reverse or repeat them.
[[nodiscard]] at::Tensor unfolded(at::Tensor cells, const partition::Piece& piece);
// The adjoint of unfolded(): reverses cells back and sums the copies of repeated cells.
[[nodiscard]] at::Tensor folded(at::Tensor cells, const partition::Piece& piece);

// Returns an uninitialized tensor with the type and device of `like`. Host memory comes from a pool.
[[nodiscard]] at::Tensor fresh(at::IntArrayRef sizes, const at::Tensor& like);

}  // namespace weft::spatial
