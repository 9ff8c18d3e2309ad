// Who starts and ends MPI: this program has no MPI_Init of its own, and each case ends the process.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>

#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

// MPI starts once per process, so every case runs in a child of its own, as a singleton without mpirun.
class Lifetime : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void leave(bool good) { std::exit(good ? 0 : 1); }

TEST_F(Lifetime, OwnerStartsAndEndsMpi) {
  EXPECT_EXIT(
      {
        if (Environment::alive()) leave(false);
        {
          const Environment owner;
          const Environment guest;
          if (!Environment::alive() || !Environment::thread_multiple()) leave(false);
        }
        leave(Environment::finalized() && !Environment::alive());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Lifetime, EnsureStartsOnceAndEndsAtExit) {
  EXPECT_EXIT(
      {
        Environment::ensure();
        Environment::ensure();
        leave(CommunicatorView::world().size() == 1);  // the handler that ensure() registered finalises
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Lifetime, StartingAgainAfterTheEndThrows) {
  EXPECT_EXIT(
      {
        Environment::ensure();
        Environment::finalize();
        try {
          Environment::ensure();
        } catch (const MpiError&) {
          leave(Environment::finalized());
        }
        leave(false);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Lifetime, CommunicatorsMayOutliveMpi) {
  EXPECT_EXIT(
      {
        Communicator survivor;
        {
          const Environment owner;
          survivor = CommunicatorView::world().dup("survivor");
        }
        survivor = Communicator();  // must not call MPI_Comm_free any more
        leave(true);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace weft::mpi
