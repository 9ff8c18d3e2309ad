#include "weft/spatial/exchange/cells.h"

#include <ATen/ops/empty.h>

#include "weft/collective/pool.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Box;
using partition::Piece;

std::int64_t dim_of(const Tensor& x, const Piece& piece, std::size_t i) {
  return x.dim() - static_cast<std::int64_t>(piece.steps.size()) + static_cast<std::int64_t>(i);
}

}  // namespace

Tensor region(Tensor x, const Box& box, const Box& origin) {
  const std::int64_t leading = x.dim() - static_cast<std::int64_t>(box.dims());
  for (std::size_t i = 0; i < box.dims(); ++i) {
    const auto range = box.ranges[i];
    x = x.narrow(leading + static_cast<std::int64_t>(i), range.begin - origin.ranges[i].begin, range.size());
  }
  return x;
}

Tensor unfolded(Tensor cells, const Piece& piece) {
  if (piece.plain()) return cells;
  for (std::size_t i = 0; i < piece.steps.size(); ++i) {
    if (piece.steps[i] < 0) cells = cells.flip(dim_of(cells, piece, i));
  }
  auto sizes = cells.sizes().vec();
  for (std::size_t i = 0; i < piece.steps.size(); ++i) {
    sizes[static_cast<std::size_t>(dim_of(cells, piece, i))] = piece.target.ranges[i].size();
  }
  return cells.expand(sizes);
}

Tensor folded(Tensor cells, const Piece& piece) {
  if (piece.plain()) return cells;
  for (std::size_t i = 0; i < piece.steps.size(); ++i) {
    const std::int64_t dim = dim_of(cells, piece, i);
    if (piece.steps[i] < 0) cells = cells.flip(dim);
    if (piece.steps[i] == 0) cells = cells.sum(dim, /*keepdim=*/true);
  }
  return cells;
}

Tensor fresh(at::IntArrayRef sizes, const Tensor& like) {
  return like.device().is_cpu() ? collective::pooled_empty(sizes, like.scalar_type())
                                : at::empty(sizes, like.options());
}

}  // namespace weft::spatial
