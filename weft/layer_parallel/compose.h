// Serial layers before and behind a LayerParallel network: they run on one rank, and all ranks keep one graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "weft/mpi/team.h"

namespace weft::layer_parallel {

// A zero that depends on `x`, with gradient zero; also where `x` is not finite.
[[nodiscard]] at::Tensor zero_joined_to(const at::Tensor& zero, const at::Tensor& x);
[[nodiscard]] at::Tensor scalar_zero();

// For Ends::kRoot: function(arguments...) on rank 0. Elsewhere it is not called, and the result is a zero that joins
// the arguments' graphs, so that backward passes from it on every rank meet in the network between.
template <class Function, class... Arguments>
[[nodiscard]] at::Tensor compose(const mpi::Team& team, Function&& function, const Arguments&... arguments) {
  if (team.rank() == 0) return std::forward<Function>(function)(arguments...);
  at::Tensor zero = scalar_zero();
  ((zero = zero_joined_to(zero, arguments)), ...);
  return zero;
}

}  // namespace weft::layer_parallel
