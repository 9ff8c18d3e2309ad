// gather: the root gets the concatenation of all ranks' tensors along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective.
// x: this rank's tensor. Sizes along `dim` may differ between ranks; all else must be equal.
// Returns the concatenation in rank order on the root; a tensor of size 0 along `dim` on other ranks.
// Throws mpi::Disagreement on all ranks if the calls differ or one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: scatter of the root's gradient.
[[nodiscard]] at::Tensor gather(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t dim = 0,
                                std::int64_t root = 0, std::source_location where = std::source_location::current());

}  // namespace weft::collective
