// Point-to-point exchange with 64-bit counts between all pairs of ranks; what collectives fall back to.
#pragma once

#include <cstdint>
#include <span>

#include "weft/mpi/communicator.h"
#include "weft/mpi/datatype.h"

namespace weft::mpi {

// Sends send_counts[i] elements to rank i and receives recv_counts[i] from it, in chunks of Options::max_count.
// Sends lie one after the other in rank order, or all start at `in` where same_for_all. Collective; blocking.
void pairwise(const void* in, std::span<const std::int64_t> send_counts, bool same_for_all, void* out,
              std::span<const std::int64_t> recv_counts, Datatype type, CommunicatorView comm);

}  // namespace weft::mpi
