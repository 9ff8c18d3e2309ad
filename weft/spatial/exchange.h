// The differentiable exchange between tiles, and its adjoint. Collective over the plan's ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <source_location>

#include "weft/spatial/halo_plan.h"
#include "weft/spatial/transfer.h"

namespace weft::spatial {

// The box that this rank needs, out of the ranks' tiles; `fill` where it lies outside of the field. Moves what the plan
// lists between the ranks that own and need. Adjoint: halo_accumulate.
[[nodiscard]] at::Tensor halo_exchange(const at::Tensor& x, const HaloPlanPtr& plan, double fill = 0,
                                       std::source_location where = std::source_location::current());

// The tile, as the sum of what all ranks' needed boxes hold for its cells; what lies outside of the field is dropped.
// Adjoint: halo_exchange with fill 0.
[[nodiscard]] at::Tensor halo_accumulate(const at::Tensor& g, const HaloPlanPtr& plan,
                                         std::source_location where = std::source_location::current());

// As halo_exchange, with work of this rank's own between posting the messages and waiting for them.
[[nodiscard]] at::Tensor halo_exchange_while(const at::Tensor& x, const HaloPlanPtr& plan,
                                             const std::function<void()>& work, double fill = 0);

// The adjoint of one recorded exchange, begun before autograd comes to its node: messages leave as soon as their
// contents are known, and the work in between hides them.
class EarlyReply {
 public:
  // The one of the exchange that made `padded`; null where none was recorded or nothing is communicated.
  [[nodiscard]] static std::shared_ptr<EarlyReply> of(const at::Tensor& padded);

  // Posts the adjoint of the gradient `g`, which the node must then be given. Not where derivatives of it are wanted.
  void begin(const at::Tensor& g);
  // Takes what was begun for `g`, if anything was.
  [[nodiscard]] std::optional<Transfer> take(const at::Tensor& g);

  HaloPlanPtr plan;
  int tag = 0;

 private:
  at::Tensor gradient_;
  std::optional<Transfer> transfer_;
};

}  // namespace weft::spatial
