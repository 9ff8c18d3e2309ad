// Transfer of states between the ranks at the two ends of the network and the other ranks.
#pragma once

#include <cstdint>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/states.h"
#include "weft/mpi/communicator.h"

namespace weft::layer_parallel {

// All functions are collective and must not be called during a solve.

// Sends the state of rank `from` to rank `to`, which returns it; other ranks return their argument.
[[nodiscard]] Tensors send_state(Tensors state, int from, int to, const Codec& codec, Communicator& communicator);
// Returns the state of rank `from` on every rank.
[[nodiscard]] Tensors broadcast_state(Tensors state, int from, const Codec& codec, Communicator& communicator);
// Returns the mean over the ranks.
[[nodiscard]] Tensors mean_over_ranks(const Tensors& state, Communicator& communicator);
// Returns the numbers of rank `from` on every rank; only that rank needs to know how many there are.
[[nodiscard]] std::vector<std::int64_t> broadcast_numbers(std::vector<std::int64_t> numbers, int from,
                                                          Communicator& communicator);

}  // namespace weft::layer_parallel
