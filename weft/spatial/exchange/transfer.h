// An exchange in flight: packs and sends messages, and unpacks the received ones.
//
// Messages use buffers that the plan keeps together with its requests. Transfers are not differentiable; the functions
// of exchange.h are.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "weft/spatial/exchange/halo_plan.h"

namespace weft::spatial {

class Transfer {
 public:
  // Sends cells of the tile `x` to the ranks that need them, in the direction's channel with `tag`.
  [[nodiscard]] static Transfer of_cells(const at::Tensor& x, const HaloPlan& plan, mpi::Direction direction, int tag);
  // Sends the gradients of halo cells back to the owners of the cells. `gradient_of` returns the gradient of a piece's
  // target. `like` supplies the leading sizes and the type.
  using ContentsOf = std::function<at::Tensor(const partition::Piece&)>;
  [[nodiscard]] static Transfer of_gradients(const at::Tensor& like, const HaloPlan& plan,
                                             const ContentsOf& gradient_of, mpi::Direction direction, int tag);

  // Block until all messages have arrived. finish_cells passes cells to `place` in the order of the piece's target;
  // finish_gradients adds gradients to the tile.
  using Take = std::function<void(const partition::Piece&, const at::Tensor&)>;
  void finish_cells(const HaloPlan& plan, const Take& place);
  void finish_gradients(const at::Tensor& tile, const HaloPlan& plan);

 private:
  Transfer(const at::Tensor& like, const HaloPlan& plan, Cargo cargo, mpi::Direction direction, int tag);
  // Copies the contents of each outgoing piece into its message and sends all messages.
  void send(const HaloPlan& plan, const ContentsOf& contents);
  void receive(const HaloPlan& plan, const Take& take);

  Cargo cargo_;
  mpi::Direction direction_;
  int tag_;
  std::int64_t tile_bytes_;
  std::unique_ptr<ExchangeBuffers> buffers_;
};

// Returns the needed box with this rank's own cells and the fill value. Cells of other ranks are uninitialized.
[[nodiscard]] at::Tensor with_own_cells(const at::Tensor& x, const HaloPlan& plan, double fill);
// Returns the tile's gradient from this rank's own part of the needed box.
[[nodiscard]] at::Tensor with_own_gradients(const at::Tensor& g, const HaloPlan& plan);

}  // namespace weft::spatial
