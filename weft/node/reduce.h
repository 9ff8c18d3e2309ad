// reduce for ranks that share memory.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/mpi/reduce_op.h"
#include "weft/node/call.h"

namespace weft::node {

// Starts a reduction of `count` elements to `out` of the root, in place if in == out there; other ranks may pass null.
// Collective. The contributions are reduced in rank order. kMean gives the sum. Returns null on all ranks if MPI has to
// be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_reduce(const void* in, void* out, std::int64_t count,
                                                           mpi::Datatype type, mpi::ReduceOp op, int root,
                                                           mpi::CommView comm, std::shared_ptr<void> keep);

// Blocks. Uses mpi::reduce() if start_reduce() returns null.
void reduce(const void* in, void* out, std::int64_t count, mpi::Datatype type, mpi::ReduceOp op, int root,
            mpi::CommView comm, const Call& call);

}  // namespace weft::node
