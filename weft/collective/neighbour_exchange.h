// neighbour_exchange: tensors to and from the neighbours on a grid of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <vector>

#include "weft/collective/comm.h"

namespace weft::collective {

// Collective: the ranks agree, then each exchanges with its neighbours on a communicator made by cart(). `outgoing` has
// two entries per dimension of the grid, for the neighbour before and the one after; the result has what came from
// them. Beyond an edge the entry is undefined, going in (ignored) and coming out. Shapes may differ. Its own adjoint.
[[nodiscard]] std::vector<at::Tensor> neighbour_exchange(const std::vector<at::Tensor>& outgoing, const Comm& comm,
                                                         std::source_location where = std::source_location::current());

// Collective: nobody leaves before everybody has entered.
void barrier(const Comm& comm, std::source_location where = std::source_location::current());

}  // namespace weft::collective
