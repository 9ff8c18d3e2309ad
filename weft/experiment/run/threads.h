// The number of threads that each rank computes with.
#pragma once

#include <optional>

#include "weft/mpi/communicator.h"

namespace weft::experiment {

// Sets torch's number of threads and returns it: `requested`, or OMP_NUM_THREADS, or this rank's share of the cores:
// the cores that it may run on, divided by the number of ranks that may run on them. Collective.
int set_threads(std::optional<int> requested, const CommunicatorPtr& world);

}  // namespace weft::experiment
