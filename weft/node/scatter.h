// scatter for ranks that share memory.
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

// Starts a scatter: rank i gets the bytes[i] bytes of pieces[i] of the root in `out`. Collective. Other ranks may pass
// no pieces, but all ranks pass the same sizes. Returns null on all ranks if MPI has to be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_scatter(const std::vector<const void*>& pieces, void* out,
                                                            std::span<const std::int64_t> bytes, int root,
                                                            mpi::CommView comm, std::shared_ptr<void> keep);

// Blocks. `in` of the root holds the counts[i] elements for each rank i in rank order. Uses mpi::scatter() if
// start_scatter() returns null.
void scatter(const void* in, void* out, std::span<const std::int64_t> counts, mpi::Datatype type, int root,
             mpi::CommView comm, const Call& call);

}  // namespace weft::node
