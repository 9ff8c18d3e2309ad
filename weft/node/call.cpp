#include "weft/node/call.h"

#include "weft/mpi/error.h"
#include "weft/mpi/waiter.h"

namespace weft::node {

void complete(mpi::Operation& operation, const Call& call) {
  mpi::Waiter waiter({.operation = call.operation, .communicator = call.communicator});
  const auto run = [&] {
    while (!operation.advance()) waiter.idle();
  };
  if (call.communicator == nullptr) return run();
  try {
    mpi::alarm_on_timeout(*call.communicator, run);
  } catch (const mpi::PeerLost& error) {
    call.communicator->raise_alarm(error.what());  // without effect if a peer raised one
    throw;
  }
}

}  // namespace weft::node
