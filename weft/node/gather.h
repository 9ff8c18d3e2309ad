// gather for ranks that share memory.
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

// Starts a gather: pieces[i] of the root gets the bytes[i] bytes of rank i. Collective. Other ranks may pass no pieces,
// but all ranks pass the same sizes. Returns null on all ranks if MPI has to be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_gather(const void* in, const std::vector<void*>& pieces,
                                                           std::span<const std::int64_t> bytes, int root,
                                                           mpi::CommView comm, std::shared_ptr<void> keep);

// Blocks. `out` of the root holds the counts[i] elements of each rank i in rank order. Uses mpi::gather() if
// start_gather() returns null.
void gather(const void* in, void* out, std::span<const std::int64_t> counts, mpi::Datatype type, int root,
            mpi::CommView comm, const Call& call);

}  // namespace weft::node
