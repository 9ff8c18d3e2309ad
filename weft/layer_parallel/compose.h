// Serial layers before and after a LayerParallel network: rank 0 runs them, and the graphs of all ranks stay connected.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "weft/mpi/communicator.h"

namespace weft::layer_parallel {

// Returns a zero that depends on `x` with gradient zero, even if `x` is not finite.
[[nodiscard]] at::Tensor zero_joined_to(const at::Tensor& zero, const at::Tensor& x);
[[nodiscard]] at::Tensor scalar_zero();

// For networks without Options::replicated.
// Returns function(arguments...) on rank 0. Other ranks do not call the function and return a zero that depends on the
// arguments, so that backward reaches the network on every rank.
template <class Function, class... Arguments>
[[nodiscard]] at::Tensor compose(const Communicator& communicator, Function&& function, const Arguments&... arguments) {
  if (communicator.rank() == 0) return std::forward<Function>(function)(arguments...);
  at::Tensor zero = scalar_zero();
  ((zero = zero_joined_to(zero, arguments)), ...);
  return zero;
}

}  // namespace weft::layer_parallel
