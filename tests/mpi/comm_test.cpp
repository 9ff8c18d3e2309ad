// CommView and UniqueComm: derivation, Cartesian grids, ownership and error messages.
#include "weft/mpi/comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;

int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int sum_over(CommView comm, int value) {
  int sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm.handle());
  return sum;
}

// The rank of MPI at these coordinates, in row-major order; coordinates of -1 wrap around or leave the grid.
int rank_at(std::vector<int> coordinates, const CommView::CartTopology& grid) {
  int rank = 0;
  for (std::size_t d = 0; d < coordinates.size(); ++d) {
    const int extent = grid.extents[d];
    const bool outside = coordinates[d] < 0 || coordinates[d] >= extent;
    if (outside && !grid.periodic[d]) return MPI_PROC_NULL;
    rank = rank * extent + (coordinates[d] + extent) % extent;
  }
  return rank;
}

void expect_correct_neighbours(const UniqueComm& cart) {
  const auto grid = cart.cart_topology();
  EXPECT_EQ(rank_at(grid.coordinates, grid), cart.rank());
  for (std::size_t d = 0; d < grid.extents.size(); ++d) {
    auto before = grid.coordinates;
    auto after = grid.coordinates;
    --before[d];
    ++after[d];
    const auto neighbours = cart.neighbours(static_cast<int>(d));
    EXPECT_EQ(neighbours.before, rank_at(before, grid)) << "dimension " << d;
    EXPECT_EQ(neighbours.after, rank_at(after, grid)) << "dimension " << d;
  }
}

TEST(CommView, DefaultIsInvalid) {
  const CommView none;
  EXPECT_FALSE(none.valid());
  EXPECT_EQ(none.rank(), -1);
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.name(), "(none)");
  EXPECT_FALSE(CommView(MPI_COMM_NULL).valid());
}

TEST(CommView, WorldHasRankSizeAndName) {
  const auto world = CommView::world();
  EXPECT_EQ(world.rank(), world_rank());
  EXPECT_EQ(world.size(), world_size());
  EXPECT_EQ(world.name(), "MPI_COMM_WORLD");
  EXPECT_GE(world.tag_upper_bound(), 32767);
}

TEST(UniqueComm, DupHasTheSameRanksAndItsOwnName) {
  const auto copy = CommView::world().dup("copy");
  int relation = MPI_UNEQUAL;
  MPI_Comm_compare(copy.handle(), MPI_COMM_WORLD, &relation);
  EXPECT_EQ(relation, MPI_CONGRUENT);
  EXPECT_EQ(copy.name(), "copy");
  EXPECT_EQ(copy.dup().name(), "copy");
  copy.barrier();
}

TEST(UniqueComm, TruncatesLongNames) {
  const auto copy = CommView::world().dup(std::string(1000, 'x'));
  EXPECT_EQ(copy.name(), std::string(MPI_MAX_OBJECT_NAME - 1, 'x'));
}

TEST(UniqueComm, SplitOrdersByKeyWithinUnevenColors) {
  const int rank = world_rank();
  const int size = world_size();
  const int color = rank == 0 ? 5 : 2;  // rank 0 alone
  const auto part = CommView::world().split(color, -rank);
  ASSERT_TRUE(part.valid());
  EXPECT_EQ(part.size(), rank == 0 ? 1 : size - 1);
  EXPECT_EQ(part.rank(), rank == 0 ? 0 : size - 1 - rank);
  EXPECT_EQ(sum_over(part, rank), rank == 0 ? 0 : size * (size - 1) / 2);
}

TEST(UniqueComm, NegativeColorExcludesARank) {
  const int rank = world_rank();
  const auto part = CommView::world().split(rank == world_size() - 1 ? -3 : 0, rank);
  EXPECT_EQ(part.valid(), rank != world_size() - 1);
  EXPECT_EQ(part.size(), part.valid() ? world_size() - 1 : 0);
}

TEST(UniqueComm, SplitSharedReturnsTheRanksOfTheNode) {
  const auto node = CommView::world().split_shared();
  EXPECT_EQ(node.size(), world_size());  // tests run on one machine
  EXPECT_EQ(node.rank(), world_rank());
}

TEST(Cart, RowHasCoordinatesAndNeighbours) {
  for (const bool wrap : {false, true}) {
    const auto row = CommView::world().cart({world_size()}, {wrap});
    ASSERT_TRUE(row.is_cart());
    EXPECT_THAT(row.cart_topology().periodic, testing::ElementsAre(wrap));
    EXPECT_THAT(row.cart_topology().coordinates, testing::ElementsAre(world_rank()));
    expect_correct_neighbours(row);
  }
}

TEST(Cart, RanksBeyondTheGridGetAnInvalidCommunicator) {
  const int columns = std::max(1, world_size() / 2);
  const int rows = world_size() >= 2 ? 2 : 1;
  const auto grid = CommView::world().cart({rows, columns}, {false, true});
  EXPECT_EQ(grid.valid(), world_rank() < rows * columns);
  if (!grid.valid()) return;
  EXPECT_EQ(grid.size(), rows * columns);
  EXPECT_THAT(grid.cart_topology().extents, testing::ElementsAre(rows, columns));
  expect_correct_neighbours(grid);
}

TEST(Cart, DefaultsToNonPeriodicAndDupKeepsTheTopology) {
  const auto row = CommView::world().cart({world_size(), 1, 1}, {});
  EXPECT_THAT(row.cart_topology().periodic, testing::ElementsAre(false, false, false));
  const auto copy = row.dup("copy");
  ASSERT_TRUE(copy.is_cart());
  EXPECT_EQ(copy.cart_topology().extents, row.cart_topology().extents);
  expect_correct_neighbours(copy);
}

TEST(Cart, RejectsInvalidGridsOnEveryRank) {
  const auto world = CommView::world();
  EXPECT_THROW(static_cast<void>(world.cart({world.size()}, {true, false})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(world.cart({world.size() + 1}, {false})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(world.cart({0}, {false})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(world.cart({-1, -1}, {false, false})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(world.cart({65536, 65536}, {})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(world.cart({65537, 65537, 1 << 30, 1 << 30, 1 << 30}, {})), std::invalid_argument);
  world.barrier();
}

TEST(Cart, TopologyQueryOnAPlainCommunicatorNamesItInTheError) {
  const auto plain = CommView::world().dup("plain");
  EXPECT_FALSE(plain.is_cart());
  EXPECT_THROW(static_cast<void>(plain.neighbours(0)), MpiError);
  try {
    static_cast<void>(plain.cart_topology());
    FAIL() << "a communicator without a topology must throw";
  } catch (const MpiError& error) {
    EXPECT_THAT(error.what(), HasSubstr("MPI_Cartdim_get"));
    EXPECT_THAT(error.what(), HasSubstr("'plain'"));
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(world_rank())));
  }
}

TEST(UniqueComm, MoveInvalidatesTheSource) {
  auto first = CommView::world().dup("first");
  const MPI_Comm handle = first.handle();
  UniqueComm second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): on purpose
  EXPECT_EQ(first.size(), 0);
  EXPECT_EQ(second.handle(), handle);
  UniqueComm third = CommView::world().dup("third");  // freed by the assignment
  third = std::move(second);
  EXPECT_FALSE(second.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(third.name(), "first");
  EXPECT_EQ(third.rank(), world_rank());
  third.barrier();
}

TEST(UniqueComm, LeakReleasesOwnership) {
  auto owner = CommView::world().dup("leaked");
  MPI_Comm handle = owner.leak();
  EXPECT_FALSE(owner.valid());
  const auto again = UniqueComm::adopt(handle);
  EXPECT_EQ(again.name(), "leaked");
  EXPECT_FALSE(UniqueComm::adopt(MPI_COMM_NULL, "nothing").valid());
}

int fortran_handle(MPI_Comm comm) {
#if defined(MPI_ABI_VERSION)
  return MPI_Comm_toint(comm);
#else
  return MPI_Comm_c2f(comm);
#endif
}

TEST(UniqueComm, FromFortranDuplicatesTheHandle) {
  const auto reversed = CommView::world().split(0, -world_rank());
  const auto copy = UniqueComm::from_fortran(fortran_handle(reversed.handle()));
  int relation = MPI_UNEQUAL;
  MPI_Comm_compare(copy.handle(), reversed.handle(), &relation);
  EXPECT_EQ(relation, MPI_CONGRUENT);
  EXPECT_EQ(copy.rank(), world_size() - 1 - world_rank());
  EXPECT_THROW(static_cast<void>(UniqueComm::from_fortran(fortran_handle(MPI_COMM_NULL))), std::invalid_argument);
}

}  // namespace
}  // namespace weft::mpi
