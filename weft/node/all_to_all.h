// all_to_all for ranks that share memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/node/call.h"
#include "weft/node/exchange.h"

namespace weft::node {

// Starts an all-to-all: given[i] goes to rank i, and taken[i] gets the bytes of rank i. Collective. Returns null on all
// ranks if MPI has to be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_all_to_all(std::vector<Given> given, std::vector<Taken> taken,
                                                               mpi::CommView comm, std::shared_ptr<void> keep);

// Blocks. `in` holds send_counts[i] elements for each rank i, and `out` receive_counts[i] elements of it, in rank
// order. Uses mpi::all_to_all() if start_all_to_all() returns null.
void all_to_all(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, mpi::Datatype type, mpi::CommView comm, const Call& call);

}  // namespace weft::node
