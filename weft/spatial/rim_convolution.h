// The halo convolved by itself: what it adds to a tile's outputs, and the gradients of that.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "weft/spatial/halo_plan.h"
#include "weft/spatial/kernel.h"
#include "weft/spatial/rim.h"

namespace weft::spatial {

// The tile itself is no halo; a piece of it that a border folds back, or that comes around, is.
[[nodiscard]] bool is_halo(const partition::Piece& piece);

// The inputs of each part of the rim, as the halo comes. What the tile gives to its own halo is there at once.
class RimInputs {
 public:
  // All three must live as long.
  RimInputs(const at::Tensor& x, const HaloPlan& plan, const Rim& rim);

  // Cells that are all of a part's inputs stay where they came.
  void place(const partition::Piece& piece, const at::Tensor& cells);
  // To the outputs `y` of the tile `tile`.
  void add_to(const at::Tensor& y, const partition::Box& tile, const Kernel& kernel);
  // By part, for RimGradients.
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
  // `g` is the gradient of the outputs of the tile `tile`; `of_halo`: the halo's gradient is wanted, and computed at
  // once. `halos` and `rim` must live as long.
  RimGradients(const at::Tensor& g, const std::vector<at::Tensor>& halos, const Rim& rim, const partition::Box& tile,
               const Kernel& kernel, bool of_halo);

  // The gradient of a piece's target; `like` has the leading sizes and the type.
  [[nodiscard]] at::Tensor of(const partition::Piece& piece, const HaloPlan& plan, const at::Tensor& like) const;
  void add_to_weight(const at::Tensor& dw) const;

 private:
  const std::vector<at::Tensor>& halos_;
  const Rim& rim_;
  std::vector<Kernel> kernels_;
  std::vector<at::Tensor> outputs_;  // the outputs' gradient, by part
  std::vector<at::Tensor> inputs_;   // gradients of the inputs
};

}  // namespace weft::spatial
