// A tensor in tiles: each rank of a grid holds one box of the last dimensions and all of the leading ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>

#include "weft/partition/border.h"
#include "weft/partition/tiling.h"
#include "weft/spatial/rank_grid.h"

namespace weft::spatial {

using OptionalTensor = std::optional<at::Tensor>;

// The assignment of boxes of a field to ranks.
class Layout : public torch::CustomClassHolder {
 public:
  Layout(RankGridPtr grid, partition::Tiling tiling) : grid_(std::move(grid)), tiling_(std::move(tiling)) {}
  // Returns balanced tiles. Throws std::invalid_argument if the dimensions of shape and grid differ.
  [[nodiscard]] static c10::intrusive_ptr<Layout> balanced(const RankGridPtr& grid, const Sizes& shape);

  [[nodiscard]] const RankGridPtr& grid() const noexcept { return grid_; }
  [[nodiscard]] const partition::Tiling& tiling() const noexcept { return tiling_; }
  [[nodiscard]] const CommunicatorPtr& comm() const noexcept { return grid_->comm(); }
  [[nodiscard]] std::size_t dims() const noexcept { return tiling_.dims(); }
  [[nodiscard]] Sizes shape() const { return tiling_.shape(); }
  // Returns this rank's tile.
  [[nodiscard]] partition::Box tile() const { return tiling_.tile(grid_->rank()); }
  // Returns the sizes of this rank's part of a tensor with these leading sizes.
  [[nodiscard]] Sizes local_sizes(at::IntArrayRef leading) const;
  // Returns numbers that identify the layout in caches.
  [[nodiscard]] Sizes key() const;

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
  [[nodiscard]] Sizes sizes() const;
  [[nodiscard]] std::int64_t leading() const { return local.dim() - static_cast<std::int64_t>(dims()); }
  [[nodiscard]] at::IntArrayRef leading_sizes() const {
    return local.sizes().slice(0, static_cast<std::size_t>(leading()));
  }
  // Throws (TORCH_CHECK) if the local tensor does not have the size of the tile.
  void validate() const;
  // Also throws if the tensor is not [batch, channels, ...]. `what` names the operation.
  void validate_channels(const char* what) const;
};

// Returns the numbers of the dimensions [first, end).
[[nodiscard]] Sizes dims_between(std::int64_t first, std::int64_t end);

// Returns this rank's tile of a tensor that every rank holds whole. No communication.
[[nodiscard]] DistTensor tile_of(const at::Tensor& whole, const LayoutPtr& layout);
// Distributes the tiles of the root's tensor. Other ranks need not pass one. Collective.
[[nodiscard]] DistTensor scatter(const OptionalTensor& whole, const LayoutPtr& layout, std::int64_t root = 0);
// Returns the whole tensor on every rank. Adjoint: the sum of all ranks' gradients for a tile's cells. Collective.
[[nodiscard]] at::Tensor all_gather(const DistTensor& x);
// Returns the whole tensor on the root, and a tensor of size 0 in the tiled dimensions on other ranks. Collective.
[[nodiscard]] at::Tensor gather(const DistTensor& x, std::int64_t root = 0);
// Returns the same field in other tiles. Moves only cells that change owners. Collective.
[[nodiscard]] DistTensor repartition(const DistTensor& x, const LayoutPtr& layout);

}  // namespace weft::spatial
