// Where the network meets the rest of the program: states to and from the ranks at its two ends.
#pragma once

#include <cstdint>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/states.h"
#include "weft/mpi/team.h"

namespace weft::layer_parallel {

// Who has the network's input and output.
enum class Ends : std::int8_t {
  // Rank 0. Elsewhere the input is not looked at, and the output is zeros; both take no part in gradients.
  kRoot,
  // All ranks, each with the same input, output and loss. Gradients are then those of one loss, not of the sum.
  kAll,
};

// All of these are called by every rank of the team, outside of a solve.

// The state of rank `from` on rank `to`; other ranks get their own argument back.
[[nodiscard]] Tensors carry(Tensors state, int from, int to, const Codec& codec, mpi::Team& team);
// The state of rank `from` on every rank.
[[nodiscard]] Tensors spread(Tensors state, int from, const Codec& codec, mpi::Team& team);
// The mean over the ranks.
[[nodiscard]] Tensors mean(const Tensors& state, mpi::Team& team);
// Numbers of rank `from` on every rank, however many there are.
[[nodiscard]] std::vector<std::int64_t> announce(std::vector<std::int64_t> numbers, int from, mpi::Team& team);

}  // namespace weft::layer_parallel
