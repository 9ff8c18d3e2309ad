// all_reduce for ranks that share memory.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/mpi/reduce_op.h"
#include "weft/node/call.h"

namespace weft::node {

// Starts an all-reduce of `count` elements, in place if in == out. Collective. Results are bit-identical on all ranks
// and do not depend on the algorithm: the contributions are reduced in rank order. kMean gives the sum. Returns null on
// all ranks if MPI has to be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_all_reduce(const void* in, void* out, std::int64_t count,
                                                               mpi::Datatype type, mpi::ReduceOp op, mpi::CommView comm,
                                                               std::shared_ptr<void> keep);

// Blocks. Uses mpi::all_reduce() if start_all_reduce() returns null.
void all_reduce(const void* in, void* out, std::int64_t count, mpi::Datatype type, mpi::ReduceOp op, mpi::CommView comm,
                const Call& call);

}  // namespace weft::node
