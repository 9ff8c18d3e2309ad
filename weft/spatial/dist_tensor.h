// A tensor in tiles: each rank of a grid holds one box of its last dimensions, and all of the leading ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/tiling.h"
#include "weft/spatial/rank_grid.h"

namespace weft::spatial {

// Which rank holds which box of a field.
class Layout : public torch::CustomClassHolder {
 public:
  Layout(RankGridPtr grid, partition::Tiling tiling) : grid_(std::move(grid)), tiling_(std::move(tiling)) {}
  // Balanced tiles. Throws std::invalid_argument unless the shape has as many dimensions as the grid.
  [[nodiscard]] static c10::intrusive_ptr<Layout> balanced(const RankGridPtr& grid,
                                                           const std::vector<std::int64_t>& shape);

  [[nodiscard]] const RankGridPtr& grid() const noexcept { return grid_; }
  [[nodiscard]] const partition::Tiling& tiling() const noexcept { return tiling_; }
  [[nodiscard]] const Comm& comm() const noexcept { return grid_->comm(); }
  [[nodiscard]] std::size_t dims() const noexcept { return tiling_.dims(); }
  [[nodiscard]] std::vector<std::int64_t> shape() const { return tiling_.shape(); }
  // This rank's.
  [[nodiscard]] partition::Box tile() const { return tiling_.tile(grid_->rank()); }
  // Numbers that name it, to find routes by.
  [[nodiscard]] std::vector<std::int64_t> key() const;

 private:
  RankGridPtr grid_;
  partition::Tiling tiling_;
};

using LayoutPtr = c10::intrusive_ptr<Layout>;

struct DistTensor {
  at::Tensor local;
  LayoutPtr layout;

  [[nodiscard]] std::size_t dims() const noexcept { return layout->dims(); }
  // The global sizes: the leading ones are the tile's own.
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  [[nodiscard]] std::int64_t leading() const { return local.dim() - static_cast<std::int64_t>(dims()); }
  // Throws (TORCH_CHECK) unless the local tensor is as large as the tile.
  void validate() const;
};

// This rank's tile of a tensor that every rank holds whole. No communication.
[[nodiscard]] DistTensor tile_of(const at::Tensor& whole, const LayoutPtr& layout);
// The tiles of the root's tensor; the others' does not count and may be absent. Collective.
[[nodiscard]] DistTensor scatter(const std::optional<at::Tensor>& whole, const LayoutPtr& layout,
                                 std::int64_t root = 0);
// The whole tensor on every rank. Collective; every rank receives all of it. Adjoint: the sum of all ranks' gradients
// for a tile's cells.
[[nodiscard]] at::Tensor all_gather(const DistTensor& x);
// The whole tensor on the root; elsewhere one of size 0 in the tiled dimensions. Collective.
[[nodiscard]] at::Tensor gather(const DistTensor& x, std::int64_t root = 0);
// The same field in other tiles. Collective; moves only what changes owners.
[[nodiscard]] DistTensor repartition(const DistTensor& x, const LayoutPtr& layout);

}  // namespace weft::spatial
