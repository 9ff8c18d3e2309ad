// Environment in a program whose main(), here tests/mpi_main.cpp, initialises and finalises MPI.
#include "weft/mpi/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

TEST(Environment, IsAliveBetweenInitAndFinalize) {
  EXPECT_TRUE(Environment::initialized());
  EXPECT_FALSE(Environment::finalized());
  EXPECT_TRUE(Environment::alive());
}

TEST(Environment, DoesNotFinaliseMpiThatItDidNotInitialise) {
  {
    const Environment first;
    const Environment second;
    EXPECT_TRUE(Environment::alive());
  }
  Environment::ensure();
  Environment::ensure();
  Environment::finalize();
  Environment::finalize();
  EXPECT_TRUE(Environment::alive());
  EXPECT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
}

TEST(Environment, ReportsTheThreadLevelOfMpi) {
  int level = 0;
  MPI_Query_thread(&level);
  ASSERT_EQ(level, MPI_THREAD_MULTIPLE);  // mpi_main.cpp requires it
  EXPECT_EQ(Environment::thread_level(), "MPI_THREAD_MULTIPLE");
  EXPECT_TRUE(Environment::thread_multiple());
  EXPECT_NO_THROW(Environment::require_thread_multiple("the test"));
}

TEST(Environment, ReportsLibraryStandardAndHost) {
  EXPECT_THAT(Environment::library_version(),
              testing::AnyOf(testing::HasSubstr("Open MPI"), testing::HasSubstr("MPICH")));
  EXPECT_THAT(Environment::standard_version(), testing::MatchesRegex("[3-9]\\.[0-9]"));
  EXPECT_FALSE(Environment::processor_name().empty());
}

}  // namespace
}  // namespace weft::mpi
