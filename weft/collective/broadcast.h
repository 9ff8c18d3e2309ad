// broadcast: every rank gets the root's tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective.
// x: the tensor to send on the root; a tensor of the same shape and dtype, whose values are ignored, on other ranks.
// Returns a copy of the root's tensor.
// Throws mpi::Disagreement on all ranks if shape, dtype or root differ, or if one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: reduce of the gradient to the root with sum; the inputs of other ranks get zeros.
[[nodiscard]] at::Tensor broadcast(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t root = 0,
                                   std::source_location where = std::source_location::current());

}  // namespace weft::collective
