// Point-to-point exchange with 64-bit counts between all pairs of ranks: the fallback of the collectives.
#pragma once

#include <cstdint>
#include <span>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"

namespace weft::mpi {

// Collective; blocks. Sends send_counts[i] elements to rank i and receives recv_counts[i] from it, in chunks of
// Options::max_count. The data to send is packed in rank order; with `same_for_all` every piece starts at `in`.
void pairwise(const void* in, std::span<const std::int64_t> send_counts, bool same_for_all, void* out,
              std::span<const std::int64_t> recv_counts, Datatype type, CommView comm);

}  // namespace weft::mpi
