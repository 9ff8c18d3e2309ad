// broadcast for ranks that share memory.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/node/call.h"

namespace weft::node {

// Starts a broadcast of `bytes` bytes from the root. Collective. The root does not wait for a small message. Returns
// null on all ranks if MPI has to be used.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_broadcast(void* data, std::int64_t bytes, int root,
                                                              mpi::CommView comm, std::shared_ptr<void> keep);

// Broadcasts `count` elements. Blocks. Uses mpi::broadcast() if start_broadcast() returns null.
void broadcast(void* data, std::int64_t count, mpi::Datatype type, int root, mpi::CommView comm, const Call& call);

}  // namespace weft::node
