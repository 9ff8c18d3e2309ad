// A blocking call of a collective.
#pragma once

#include <memory>

#include "weft/mpi/communicator.h"
#include "weft/mpi/operation.h"

namespace weft::node {

struct Call {
  const char* operation = "collective";       // for messages
  mpi::Communicator* communicator = nullptr;  // its alarms interrupt long waits, and a failure raises one; may be null
  std::shared_ptr<void> keep = {};            // owns the memory of the call
  bool host_memory = true;                    // if not, as for CUDA tensors, MPI is used; must be equal on all ranks
};

// Advances the operation until it is done. Throws like mpi::Waiter. If a peer is lost, or the wait times out or is
// interrupted, raises an alarm on the communicator first.
void complete(mpi::Operation& operation, const Call& call);

}  // namespace weft::node
