// all_to_all: every rank splits its tensor along one dimension, sends piece i to rank i, and concatenates the
// received pieces along another (or the same) dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <source_location>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective.
// split_sizes: the sizes of this rank's pieces along `split_dim`; may differ between ranks. Default: a balanced split.
// traced_total: the size of the result along `concat_dim` while torch.compile traces, if sizes differ between ranks.
// Returns the received pieces in rank order, concatenated along `concat_dim`. If the dimensions differ, all pieces that
// a rank receives must have the same size along `split_dim`.
// Throws mpi::Disagreement on all ranks if the calls differ or one rank's arguments or pieces are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: all_to_all with the two dimensions exchanged.
[[nodiscard]] at::Tensor all_to_all(const at::Tensor& x, const CommunicatorPtr& comm, std::int64_t split_dim = 0,
                                    std::int64_t concat_dim = 0, at::OptionalIntArrayRef split_sizes = std::nullopt,
                                    const std::optional<c10::SymInt>& traced_total = std::nullopt,
                                    std::source_location where = std::source_location::current());

}  // namespace weft::collective
