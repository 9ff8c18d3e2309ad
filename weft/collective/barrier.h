// barrier: blocks until all ranks have called it.
#pragma once

#include <source_location>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// Collective.
// Throws mpi::Disagreement on all ranks if one of them called another operation.
// Throws mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
void barrier(const CommunicatorPtr& comm, std::source_location where = std::source_location::current());

}  // namespace weft::collective
