// all_gather: every rank gets the concatenation of all ranks' tensors along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <source_location>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective.
// x: this rank's tensor. Sizes along `dim` may differ between ranks and may be 0; all else must be equal.
// traced_total: the size of the result along `dim` while torch.compile traces, if sizes differ between ranks.
// Returns the concatenation in rank order. A 0-dimensional x counts as one element.
// Throws mpi::Disagreement on all ranks if dtype, other sizes or `dim` differ, or if one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: reduce_scatter of the gradient with sum.
[[nodiscard]] at::Tensor all_gather(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t dim = 0,
                                    const std::optional<c10::SymInt>& traced_total = std::nullopt,
                                    std::source_location where = std::source_location::current());

}  // namespace weft::collective
