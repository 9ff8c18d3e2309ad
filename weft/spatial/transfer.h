// One exchange under way: its messages are packed and started, and what came is put where it belongs.
//
// Messages leave from and come into memory that the plan keeps with its requests. Nothing here is differentiable;
// exchange.h is.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "weft/spatial/halo_plan.h"

namespace weft::spatial {

class Transfer {
 public:
  // Cells of the tile `x` to the ranks that need them, in the direction's channel under `tag`.
  [[nodiscard]] static Transfer of_cells(const at::Tensor& x, const HaloPlan& plan, mpi::Direction direction, int tag);
  // The reverse: what this rank has for cells that others own goes back to them. `gradient_of` gives that of a piece's
  // target; `like` has the leading sizes and the type.
  using GradientOf = std::function<at::Tensor(const partition::Piece&)>;
  [[nodiscard]] static Transfer of_gradients(const at::Tensor& like, const HaloPlan& plan,
                                             const GradientOf& gradient_of, mpi::Direction direction, int tag);

  // Block until all has come. Cells are given to `place`, as they lie in the piece's target; gradients are added to the
  // tile.
  using PlaceCells = std::function<void(const partition::Piece&, const at::Tensor&)>;
  void finish_cells(const HaloPlan& plan, const PlaceCells& place);
  void finish_gradients(const at::Tensor& tile, const HaloPlan& plan);

 private:
  Transfer(const at::Tensor& like, const HaloPlan& plan, Cargo cargo, mpi::Direction direction, int tag);
  // Puts what `contents` gives for each outgoing piece into its message, and sends all of them.
  using ContentsOf = std::function<at::Tensor(const partition::Piece&)>;
  void send(const HaloPlan& plan, const ContentsOf& contents);
  using Take = std::function<void(const partition::Piece&, const at::Tensor&)>;
  void receive(const HaloPlan& plan, const Take& take);

  Cargo cargo_;
  mpi::Direction direction_;
  int tag_;
  std::int64_t tile_bytes_;
  std::unique_ptr<Lane> lane_;
};

// The needed box with this rank's own cells and the fill value in it; what others own is left uninitialised.
[[nodiscard]] at::Tensor with_own_cells(const at::Tensor& x, const HaloPlan& plan, double fill);
// The tile with what the rank's own part of the needed box adds to it.
[[nodiscard]] at::Tensor with_own_gradients(const at::Tensor& g, const HaloPlan& plan);

}  // namespace weft::spatial
