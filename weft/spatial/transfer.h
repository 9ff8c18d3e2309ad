// The messages of one exchange under way: packed, posted, and put where they belong when they have come.
//
// Nothing here is differentiable; exchange.h is.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "weft/mpi/operation.h"
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
  struct Message {
    int peer;
    std::vector<const partition::Piece*> pieces;
    std::vector<at::Tensor> contents;  // views of the buffer, one per piece, as large as the piece's source
    at::Tensor buffer;
  };

  static std::vector<Message> messages(const std::vector<partition::Piece>& pieces, const at::Tensor& like);
  void post(const HaloPlan& plan, mpi::Direction direction, int tag);
  void wait(const HaloPlan& plan);

  std::vector<Message> outgoing_;
  std::vector<Message> incoming_;
  std::unique_ptr<mpi::Operation> operation_;
};

// The needed box with this rank's own cells and the fill value in it; what others own is left uninitialised.
[[nodiscard]] at::Tensor with_own_cells(const at::Tensor& x, const HaloPlan& plan, double fill);
// The tile with what the rank's own part of the needed box adds to it.
[[nodiscard]] at::Tensor with_own_gradients(const at::Tensor& g, const HaloPlan& plan);

}  // namespace weft::spatial
