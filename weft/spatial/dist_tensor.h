// A tensor in tiles: each rank of a grid holds one box of the last dimensions and all of the leading ones.
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

// The assignment of boxes of a field to ranks.
class Layout : public torch::CustomClassHolder {
 public:
  Layout(RankGridPtr grid, partition::Tiling tiling) : grid_(std::move(grid)), tiling_(std::move(tiling)) {}
  // Returns balanced tiles. Throws std::invalid_argument if the dimensions of shape and grid differ.
  [[nodiscard]] static c10::intrusive_ptr<Layout> balanced(const RankGridPtr& grid,
                                                           const std::vector<std::int64_t>& shape);

  [[nodiscard]] const RankGridPtr& grid() const noexcept { return grid_; }
  [[nodiscard]] const partition::Tiling& tiling() const noexcept { return tiling_; }
  [[nodiscard]] const CommunicatorPtr& comm() const noexcept { return grid_->comm(); }
  [[nodiscard]] std::size_t dims() const noexcept { return tiling_.dims(); }
  [[nodiscard]] std::vector<std::int64_t> shape() const { return tiling_.shape(); }
  // Returns this rank's tile.
  [[nodiscard]] partition::Box tile() const { return tiling_.tile(grid_->rank()); }
  // Returns numbers that identify the layout in caches.
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
  // Returns the global sizes. The leading ones are those of the tile.
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  [[nodiscard]] std::int64_t leading() const { return local.dim() - static_cast<std::int64_t>(dims()); }
  // Throws (TORCH_CHECK) if the local tensor does not have the size of the tile.
  void validate() const;
};

// Returns this rank's tile of a tensor that every rank holds whole. No communication.
[[nodiscard]] DistTensor tile_of(const at::Tensor& whole, const LayoutPtr& layout);
// Distributes the tiles of the root's tensor. Other ranks need not pass one. Collective.
[[nodiscard]] DistTensor scatter(const std::optional<at::Tensor>& whole, const LayoutPtr& layout,
                                 std::int64_t root = 0);
// Returns the whole tensor on every rank. Adjoint: the sum of all ranks' gradients for a tile's cells. Collective.
[[nodiscard]] at::Tensor all_gather(const DistTensor& x);
// Returns the whole tensor on the root, and a tensor of size 0 in the tiled dimensions on other ranks. Collective.
[[nodiscard]] at::Tensor gather(const DistTensor& x, std::int64_t root = 0);
// Returns the same field in other tiles. Moves only cells that change owners. Collective.
[[nodiscard]] DistTensor repartition(const DistTensor& x, const LayoutPtr& layout);

}  // namespace weft::spatial
