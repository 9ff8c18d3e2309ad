// scatter: every rank gets its piece of the root's tensor along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective.
// x: the tensor to split on the root. Other ranks pass any tensor; it only selects the device of their piece.
// sizes: one piece size per rank; ignored on ranks other than the root. Default: a balanced split, larger pieces first.
// Returns this rank's piece, in the dtype of the root's tensor.
// Throws mpi::Disagreement on all ranks if `root` differs or one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: gather of the gradients to the root; the inputs of other ranks get zeros.
[[nodiscard]] at::Tensor scatter(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t dim = 0,
                                 std::int64_t root = 0, at::OptionalIntArrayRef sizes = std::nullopt,
                                 std::source_location where = std::source_location::current());

}  // namespace weft::collective
