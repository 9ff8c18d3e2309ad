// gather: the root gets the concatenation of all ranks' tensors along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <source_location>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective.
// x: this rank's tensor. Sizes along `dim` may differ between ranks; all else must be equal.
// traced_total: the size of the root's result along `dim` while torch.compile traces, if sizes differ between ranks.
// Returns the concatenation in rank order on the root; a tensor of size 0 along `dim` on other ranks.
// Throws mpi::Disagreement on all ranks if the calls differ or one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: scatter of the root's gradient.
[[nodiscard]] at::Tensor gather(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t dim = 0,
                                std::int64_t root = 0, const std::optional<c10::SymInt>& traced_total = std::nullopt,
                                std::source_location where = std::source_location::current());

}  // namespace weft::collective
