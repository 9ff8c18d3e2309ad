// Peers with all processes alive. tests/python/process_group/killed_test.py kills a rank of a real job.
#include "weft/mpi/peers.h"

#include <gtest/gtest.h>

#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

TEST(Peers, AcceptsLiveProcesses) {
  const UniqueComm comm = CommView::world().dup("peers");
  const Peers peers(comm);
  EXPECT_NO_THROW(peers.require_alive());
  EXPECT_NO_THROW(Peers().require_alive());
  comm.barrier();  // no rank exits while others check
}

}  // namespace
}  // namespace weft::mpi
