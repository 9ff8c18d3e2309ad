// Compares direct reductions with loops over the input of each rank: lengths around block and chunk boundaries, several
// operations in flight at once, and bit-identical results on all ranks.
#include "weft/mpi/direct_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/mpi/finish.h"
#include "tests/mpi/scoped_options.h"
#include "weft/numeric/half.h"

namespace weft::mpi {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t value(int rank, std::int64_t i) { return 1000 * (rank + 1) + 7 * i + (rank * i) % 5; }

std::vector<std::int64_t> values(int rank, std::int64_t count, std::int64_t first = 0) {
  std::vector<std::int64_t> result(index(count));
  for (std::int64_t i = 0; i < count; ++i) result[index(i)] = value(rank, first + i);
  return result;
}

class DirectReduce : public testing::Test {
 protected:
  const UniqueComm comm_ = CommView::world().dup("direct");
  const int rank_ = comm_.rank();
  const int size_ = comm_.size();
  TagSequence tags_{comm_.tag_upper_bound()};

  std::vector<std::int64_t> sum(std::int64_t count, std::int64_t first = 0) const {
    std::vector<std::int64_t> result(index(count), 0);
    for (int rank = 0; rank < size_; ++rank) {
      for (std::int64_t i = 0; i < count; ++i) result[index(i)] += value(rank, first + i);
    }
    return result;
  }
};

TEST_F(DirectReduce, AllReduceOfAnyLength) {
  // A block is 256 KiB of int64. A chunk has one block per rank, and three chunks are in flight at a time.
  const std::int64_t block = (256 << 10) / 8;
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{size_ - 1}, std::int64_t{size_ + 1},
                                   block - 1, block * size_, block * size_ + 1, 7 * block * size_ + 13}) {
    auto data = values(rank_, count);
    finish(*direct_all_reduce(data.data(), count, Datatype::kInt64, ReduceOp::kSum, comm_, tags_, nullptr));
    EXPECT_EQ(data, sum(count)) << count;
  }
}

TEST_F(DirectReduce, ConcurrentOperationsFinishInAnyOrder) {
  constexpr int kOperations = 5;
  const std::int64_t count = 100'003;
  std::vector<std::vector<std::int64_t>> data;
  std::vector<std::unique_ptr<Operation>> operations;
  for (int i = 0; i < kOperations; ++i) {
    data.push_back(values(rank_, count, i));
    operations.push_back(
        direct_all_reduce(data.back().data(), count, Datatype::kInt64, ReduceOp::kSum, comm_, tags_, nullptr));
  }
  std::vector<bool> done(kOperations, false);
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    for (int i = 0; i < kOperations; ++i) {  // every rank starts with a different one
      const auto which = static_cast<std::size_t>((i + rank_) % kOperations);
      if (!done[which]) done[which] = operations[which]->advance();
    }
  }
  for (int i = 0; i < kOperations; ++i) EXPECT_EQ(data[static_cast<std::size_t>(i)], sum(count, i));
}

TEST_F(DirectReduce, BitIdenticalOnAllRanksAndKeepsNaN) {
  const std::int64_t count = 50'001;
  std::vector<float> data(index(count));
  for (std::int64_t i = 0; i < count; ++i) data[index(i)] = std::sin(static_cast<float>(i + 31 * rank_)) * 1e3F;
  if (rank_ == size_ - 1) data[17] = NAN;
  finish(*direct_all_reduce(data.data(), count, Datatype::kFloat32, ReduceOp::kSum, comm_, tags_, nullptr));
  std::vector<float> of_first(data);
  MPI_Bcast(of_first.data(), static_cast<int>(count), MPI_FLOAT, 0, comm_.handle());
  EXPECT_EQ(std::memcmp(data.data(), of_first.data(), index(count) * sizeof(float)), 0);
  EXPECT_TRUE(std::isnan(data[17]));
}

TEST_F(DirectReduce, SupportsOtherReductionsAndHalf) {
  std::vector<std::int64_t> largest = values(rank_, 1000);
  finish(*direct_all_reduce(largest.data(), 1000, Datatype::kInt64, ReduceOp::kMax, comm_, tags_, nullptr));
  for (std::int64_t i = 0; i < 1000; ++i) {
    std::int64_t expected = 0;
    for (int rank = 0; rank < size_; ++rank) expected = std::max(expected, value(rank, i));
    EXPECT_EQ(largest[index(i)], expected);
  }
  std::vector<std::uint16_t> halves(33, 0x3c00);  // 1.0
  finish(*direct_all_reduce(halves.data(), 33, Datatype::kFloat16, ReduceOp::kSum, comm_, tags_, nullptr));
  const std::uint16_t sums[] = {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};  // 1, 2, 3, 4, 5
  ASSERT_LE(size_, 5);
  EXPECT_EQ(halves, std::vector<std::uint16_t>(33, sums[size_ - 1]));
}

// 256 + 1 is 256 in bfloat16, so rounding after each addition would lose the small values.
TEST_F(DirectReduce, HalfPrecisionIsRoundedOnce) {
  const std::int64_t count = 300'007;  // several chunks
  const auto bits = [](float value) { return numeric::BFloat16::from_float(value).bits; };
  std::vector<std::uint16_t> data(index(count), bits(rank_ == 0 ? 256.0F : 1.0F));
  const std::vector<std::uint16_t> expected(index(count), bits(255.0F + static_cast<float>(size_)));
  const std::vector<const void*> blocks(index(size_), data.data());
  std::vector<std::uint16_t> block(index(count));
  finish(*direct_reduce_scatter(blocks, std::vector<std::int64_t>(index(size_), count), block.data(),
                                Datatype::kBFloat16, ReduceOp::kSum, comm_, tags_, nullptr));
  EXPECT_EQ(block, expected);
  finish(*direct_all_reduce(data.data(), count, Datatype::kBFloat16, ReduceOp::kSum, comm_, tags_, nullptr));
  EXPECT_EQ(data, expected);
}

TEST_F(DirectReduce, ReduceScatterOfUnevenBlocks) {
  const std::int64_t block = (256 << 10) / 8;
  for (const std::int64_t unit : {std::int64_t{1}, std::int64_t{100}, block}) {
    std::vector<std::int64_t> counts(index(size_));
    for (int rank = 0; rank < size_; ++rank) counts[index(rank)] = rank == 1 ? 0 : unit * (rank + 1) + 3;
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const auto whole = values(rank_, total);
    std::vector<const void*> blocks;
    std::int64_t first = 0;
    std::int64_t mine = 0;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) mine = first;
      blocks.push_back(whole.data() + first);
      first += counts[index(rank)];
    }
    std::vector<std::int64_t> out(index(counts[index(rank_)]), -1);
    finish(*direct_reduce_scatter(blocks, counts, out.data(), Datatype::kInt64, ReduceOp::kSum, comm_, tags_, nullptr));
    EXPECT_EQ(out, sum(counts[index(rank_)], mine));
    EXPECT_EQ(whole, values(rank_, total)) << "must not change the input";
  }
}

TEST(TagSequence, WrapsAroundAfterTheLargestTag) {
  TagSequence tags(9);
  const std::int64_t first = tags.take(8);
  EXPECT_EQ(tags.tag(first), 0);
  const std::int64_t second = tags.take(4);
  EXPECT_EQ(tags.tag(second + 1), 9);
  EXPECT_EQ(tags.tag(second + 2), 0);
}

}  // namespace
}  // namespace weft::mpi
