// reduce_scatter for ranks that share memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/mpi/reduce_op.h"
#include "weft/node/call.h"

namespace weft::node {

// Starts a reduce-scatter: reduces blocks[i], of counts[i] elements, on rank i. `out` gets this rank's result and may
// be its own block. Collective. The contributions are reduced in rank order. kMean gives the sum. Returns null on all
// ranks if MPI has to be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_reduce_scatter(const std::vector<const void*>& blocks,
                                                                   std::span<const std::int64_t> counts, void* out,
                                                                   mpi::Datatype type, mpi::ReduceOp op,
                                                                   mpi::CommView comm, std::shared_ptr<void> keep);

// Blocks. `in` holds the blocks in rank order. Uses mpi::reduce_scatter() if start_reduce_scatter() returns null.
void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, mpi::Datatype type,
                    mpi::ReduceOp op, mpi::CommView comm, const Call& call);

}  // namespace weft::node
