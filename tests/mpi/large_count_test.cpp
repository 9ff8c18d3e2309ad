// Transfers of more than 2^31 elements, which do not fit an int. Slow, and needs about 10 GB for two ranks, so it runs
// on demand only: WEFT_TEST_LARGE=1 ctest -L large.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "weft/mpi/collectives.h"

namespace weft::mpi {
namespace {

constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 12'345;

// The data of a rank repeats a block of prime length. A misplaced chunk is then detected, and blocks can be written and
// compared at memory speed.
constexpr std::int64_t kBlock = 1'048'573;
using Block = std::vector<std::uint8_t>;

Block block_of(int rank) {
  Block block(kBlock);
  std::uint32_t state = static_cast<std::uint32_t>(rank) + 1;
  for (auto& byte : block) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return block;
}

struct Buffer {
  explicit Buffer(std::int64_t count) : data(new std::uint8_t[static_cast<std::size_t>(count)]) {}

  void fill(const Block& block, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kBlock) {
      std::memcpy(data.get() + i, block.data(), static_cast<std::size_t>(std::min(kBlock, count - i)));
    }
  }
  // The offset from `first` of the first block that differs, or -1.
  std::int64_t first_difference(std::int64_t first, std::int64_t count, const Block& block) const {
    for (std::int64_t i = 0; i < count; i += kBlock) {
      const auto size = static_cast<std::size_t>(std::min(kBlock, count - i));
      if (std::memcmp(data.get() + first + i, block.data(), size) != 0) return i;
    }
    return -1;
  }
  std::unique_ptr<std::uint8_t[]> data;
};

class LargeCount : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("WEFT_TEST_LARGE") == nullptr) GTEST_SKIP() << "set WEFT_TEST_LARGE=1 to run this";
  }
};

TEST_F(LargeCount, BroadcastIsComplete) {
  const auto world = CommView::world();
  const int root = world.size() - 1;
  Buffer buffer(kCount);
  buffer.fill(block_of(world.rank()), kCount);
  broadcast(buffer.data.get(), kCount, Datatype::kUInt8, root, world);
  EXPECT_EQ(buffer.first_difference(0, kCount, block_of(root)), -1);
}

TEST_F(LargeCount, AllReduceMaxIsComplete) {
  const auto world = CommView::world();
  Buffer buffer(kCount);
  buffer.fill(block_of(world.rank()), kCount);
  all_reduce(buffer.data.get(), buffer.data.get(), kCount, Datatype::kUInt8, ReduceOp::kMax, world);
  Block largest(kBlock, 0);
  for (int rank = 0; rank < world.size(); ++rank) {
    const Block block = block_of(rank);
    for (std::size_t i = 0; i < block.size(); ++i) largest[i] = std::max(largest[i], block[i]);
  }
  EXPECT_EQ(buffer.first_difference(0, kCount, largest), -1);
}

TEST_F(LargeCount, AllGatherSupportsUnevenCounts) {
  const auto world = CommView::world();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 1000);
  counts.front() = kCount;  // the part of one rank alone exceeds an int
  const std::int64_t mine = counts[static_cast<std::size_t>(world.rank())];
  Buffer in(mine);
  in.fill(block_of(world.rank()), mine);
  Buffer out(kCount + 1000 * (world.size() - 1));
  all_gather(in.data.get(), out.data.get(), counts, Datatype::kUInt8, world);
  std::int64_t first = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t count = counts[static_cast<std::size_t>(rank)];
    EXPECT_EQ(out.first_difference(first, count, block_of(rank)), -1) << "from rank " << rank;
    first += count;
  }
}

}  // namespace
}  // namespace weft::mpi
