// all_gather for ranks that share memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/node/call.h"

namespace weft::node {

// Starts an all-gather: pieces[i] gets the bytes[i] bytes of rank i. Collective. `in` may be this rank's own piece.
// Returns null on all ranks if MPI has to be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_all_gather(const void* in, const std::vector<void*>& pieces,
                                                               std::span<const std::int64_t> bytes, mpi::CommView comm,
                                                               std::shared_ptr<void> keep);

// Blocks. `out` holds the counts[i] elements of each rank i in rank order. Uses mpi::all_gather() if start_all_gather()
// returns null.
void all_gather(const void* in, void* out, std::span<const std::int64_t> counts, mpi::Datatype type, mpi::CommView comm,
                const Call& call);

}  // namespace weft::node
