// Who is still there. That a killed rank is named is tested with a real job, by
// tests/python/process_group_killed_test.py.
#include "weft/mpi/peers.h"

#include <gtest/gtest.h>

#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

TEST(Peers, EverybodyIsAlive) {
  const Communicator comm = CommunicatorView::world().dup("peers");
  const Peers peers(comm);
  EXPECT_NO_THROW(peers.require_alive());
  EXPECT_NO_THROW(Peers().require_alive());
  comm.barrier();  // nobody leaves while others look
}

}  // namespace
}  // namespace weft::mpi
