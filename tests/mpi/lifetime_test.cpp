// Initialisation and finalisation of MPI. This program does not call MPI_Init itself, and each case exits the process.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>

#include "weft/mpi/comm.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

// MPI can be initialised once per process, so every case runs in a child process, as a singleton without mpirun.
class Lifetime : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void leave(bool good) { std::exit(good ? 0 : 1); }

TEST_F(Lifetime, EnvironmentInitialisesAndFinalisesMpi) {
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

TEST_F(Lifetime, EnsureInitialisesOnceAndFinalisesAtExit) {
  EXPECT_EXIT(
      {
        Environment::ensure();
        Environment::ensure();
        leave(CommView::world().size() == 1);  // the handler that ensure() registered finalises
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Lifetime, InitialisingAfterFinaliseThrows) {
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
        UniqueComm survivor;
        {
          const Environment owner;
          survivor = CommView::world().dup("survivor");
        }
        survivor = UniqueComm();  // must not call MPI_Comm_free after MPI_Finalize
        leave(true);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace weft::mpi
