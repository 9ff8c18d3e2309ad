// The watchdog for MPI calls that cannot be interrupted. It aborts the process, so this is a separate program.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/mpi/scoped_options.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/waiter.h"

namespace weft::mpi {
namespace {

void stay_inside_mpi(std::chrono::milliseconds timeout, std::chrono::milliseconds stay) {
  Options options;
  options.timeout = timeout;
  options.warn_after = timeout / 2;
  set_options(options);
  Environment::ensure();
  const OperationScope scope("all_reduce", nullptr);
  const BlockingScope blocking;
  std::this_thread::sleep_for(stay);
}

class Watchdog : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Watchdog, AbortsAJobThatHangsInsideAnOperation) {
  EXPECT_DEATH(stay_inside_mpi(std::chrono::milliseconds(200), std::chrono::hours(1)),
               "has waited .* all_reduce called from .*watchdog_test.cpp.*inside the operation, aborting the job");
}

TEST_F(Watchdog, IgnoresShortCalls) {
  EXPECT_EXIT(
      {
        for (int i = 0; i < 3; ++i) stay_inside_mpi(std::chrono::hours(1), std::chrono::milliseconds(50));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace weft::mpi
