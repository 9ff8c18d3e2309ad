// neighbour_exchange: sends tensors to the neighbours on a Cartesian grid of ranks and receives theirs.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <vector>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective; requires a communicator made by cart().
// outgoing: two tensors per grid dimension, for the previous and the next neighbour. Shapes may differ. Entries without
// a neighbour (at the edge of the grid) are ignored and may be undefined.
// Returns the tensors received from the neighbours in the same order; undefined at the edge of the grid.
// Throws mpi::Disagreement on all ranks if one rank's arguments are invalid.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
// Adjoint: neighbour_exchange of the gradients.
[[nodiscard]] std::vector<at::Tensor> neighbour_exchange(const std::vector<at::Tensor>& outgoing,
                                                         const CommunicatorPtr& comm,
                                                         std::source_location where = std::source_location::current());

}  // namespace weft::collective
