// Convolution of the halo alone: its share of a tile's outputs, and its gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "weft/spatial/convolution/kernel.h"
#include "weft/spatial/convolution/rim.h"
#include "weft/spatial/exchange/halo_plan.h"

namespace weft::spatial {

// Returns true for a piece of the halo. Cells of the tile are halo only if a border reflects or wraps them.
[[nodiscard]] bool is_halo(const partition::Piece& piece);

// The inputs of each part of the rim, filled as the halo arrives. The tile's own cells are available from the start.
class RimInputs {
 public:
  // All three arguments must outlive this object.
  RimInputs(const at::Tensor& x, const HaloPlan& plan, const Rim& rim);

  // Stores received cells. Does not copy them if they are all the inputs of a part.
  void place(const partition::Piece& piece, const at::Tensor& cells);
  // Adds the rim to the outputs `y` of the tile `tile`.
  void add_to(const at::Tensor& y, const partition::Box& tile, const Kernel& kernel);
  // Returns the inputs by part, for RimGradients.
  [[nodiscard]] std::vector<at::Tensor> take() && { return std::move(buffers_); }

 private:
  const at::Tensor& buffer(std::size_t i);

  const at::Tensor& x_;
  const HaloPlan& plan_;
  const Rim& rim_;
  std::vector<at::Tensor> buffers_;
};

class RimGradients {
 public:
  // `g` is the gradient of the outputs of the tile `tile`. If `of_halo` is set, the constructor computes the
  // gradient of the halo.
  // `halos` and `rim` must outlive this object.
  RimGradients(const at::Tensor& g, const std::vector<at::Tensor>& halos, const Rim& rim, const partition::Box& tile,
               const Kernel& kernel, bool of_halo);

  // Returns the gradient of a piece's target. `like` supplies the leading sizes and the type.
  [[nodiscard]] at::Tensor of(const partition::Piece& piece, const HaloPlan& plan, const at::Tensor& like) const;
  void add_to_weight(const at::Tensor& dw) const;

 private:
  const std::vector<at::Tensor>& halos_;
  const Rim& rim_;
  std::vector<Kernel> kernels_;
  std::vector<at::Tensor> outputs_;  // gradients of the outputs, by part
  std::vector<at::Tensor> inputs_;   // gradients of the inputs, by part
};

}  // namespace weft::spatial
