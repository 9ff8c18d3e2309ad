// broadcast: every rank gets the root's tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"

namespace weft::collective {

// Collective. All ranks pass a tensor of the root's shape and type; only the root's values count. Adjoint: reduce to
// the root, sum; the other ranks' inputs get zeros.
[[nodiscard]] at::Tensor broadcast(const at::Tensor& x, const Comm& comm, std::int64_t root = 0,
                                   std::source_location where = std::source_location::current());

}  // namespace weft::collective
