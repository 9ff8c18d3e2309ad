// all_to_all: every rank splits its tensor along one dimension, sends piece i to rank i, and joins what it gets along
// another (or the same) dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "weft/collective/comm.h"

namespace weft::collective {

// Collective. `split_sizes` may differ between ranks (an even split without it). Where the dimensions differ, the
// pieces that a rank receives must have equal sizes along split_dim. Adjoint: all_to_all with the dimensions exchanged.
[[nodiscard]] at::Tensor all_to_all(const at::Tensor& x, const Comm& comm, std::int64_t split_dim = 0,
                                    std::int64_t concat_dim = 0, at::OptionalIntArrayRef split_sizes = std::nullopt,
                                    std::source_location where = std::source_location::current());

}  // namespace weft::collective
