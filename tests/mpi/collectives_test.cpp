// Compares every collective with loops over the input of each rank: at once, and in chunks of 7 elements.
#include "weft/mpi/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/mpi/scoped_options.h"

namespace weft::mpi {
namespace {

using Vector = std::vector<std::int64_t>;
constexpr Datatype kType = Datatype::kInt64;
constexpr std::int64_t kUntouched = -777;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Different for every rank and index, and not symmetric in them.
std::int64_t value(int rank, std::int64_t i) { return 1000 * (rank + 1) + 7 * i + (rank * i) % 5; }

Vector values(int rank, std::int64_t count, std::int64_t first = 0) {
  Vector result(index(count));
  for (std::int64_t i = 0; i < count; ++i) result[index(i)] = value(rank, first + i);
  return result;
}

Vector sum_of_ranks(int first_rank, int last_rank, std::int64_t count) {
  Vector result(index(count), 0);
  for (int rank = first_rank; rank < last_rank; ++rank) {
    for (std::int64_t i = 0; i < count; ++i) result[index(i)] += value(rank, i);
  }
  return result;
}

class Collectives : public testing::TestWithParam<std::int64_t> {
 protected:
  const ScopedOptions options_{[](Options& options) { options.max_count = GetParam(); }};
  const CommView world_ = CommView::world();
  const int rank_ = world_.rank();
  const int size_ = world_.size();
  const std::vector<std::int64_t> lengths_{0, 1, 6, 7, 8, 14, 50};

  // Uneven with empty ranks, even, all empty, and everything from one rank.
  std::vector<Vector> counts_to_try() const {
    Vector uneven(index(size_));
    for (int i = 0; i < size_; ++i) uneven[index(i)] = i == 1 ? 0 : (5 * i + 3) % 11;
    Vector lonely(index(size_), 0);
    lonely.back() = 23;
    return {uneven, Vector(index(size_), 9), Vector(index(size_), 1), Vector(index(size_), 0), lonely};
  }
  Vector gathered(const Vector& counts) const {
    Vector result;
    for (int rank = 0; rank < size_; ++rank) {
      const Vector part = values(rank, counts[index(rank)]);
      result.insert(result.end(), part.begin(), part.end());
    }
    return result;
  }
};

TEST_P(Collectives, AllReduce) {
  for (const auto count : lengths_) {
    const Vector in = values(rank_, count);
    Vector out(index(count), kUntouched);
    all_reduce(in.data(), out.data(), count, kType, ReduceOp::kSum, world_);
    EXPECT_EQ(out, sum_of_ranks(0, size_, count));
    EXPECT_EQ(in, values(rank_, count));
    Vector both = in;
    all_reduce(both.data(), both.data(), count, kType, ReduceOp::kSum, world_);
    EXPECT_EQ(both, out) << "in place, " << count;
  }
}

TEST_P(Collectives, ReduceToEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const auto count : lengths_) {
      const Vector in = values(rank_, count);
      Vector out(rank_ == root ? index(count) : 0);
      reduce(in.data(), rank_ == root ? out.data() : nullptr, count, kType, ReduceOp::kSum, root, world_);
      EXPECT_EQ(out, rank_ == root ? sum_of_ranks(0, size_, count) : Vector());
      Vector both = in;
      reduce(both.data(), both.data(), count, kType, ReduceOp::kSum, root, world_);
      EXPECT_EQ(both, rank_ == root ? out : in) << "in place, " << count;
    }
  }
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const auto count : lengths_) {
      Vector data = values(rank_, count);
      broadcast(data.data(), count, kType, root, world_);
      EXPECT_EQ(data, values(root, count));
    }
  }
}

TEST_P(Collectives, AllGather) {
  for (const Vector& counts : counts_to_try()) {
    const Vector in = values(rank_, counts[index(rank_)]);
    const Vector expected = gathered(counts);
    Vector out(expected.size() + 1, kUntouched);
    all_gather(in.data(), out.data(), counts, kType, world_);
    EXPECT_EQ(out.back(), kUntouched);
    out.pop_back();
    EXPECT_EQ(out, expected);
  }
}

TEST_P(Collectives, GatherToEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const Vector& counts : counts_to_try()) {
      const Vector in = values(rank_, counts[index(rank_)]);
      const Vector expected = gathered(counts);
      Vector out(rank_ == root ? expected.size() : 0);
      gather(in.data(), rank_ == root ? out.data() : nullptr, counts, kType, root, world_);
      EXPECT_EQ(out, rank_ == root ? expected : Vector());
    }
  }
}

TEST_P(Collectives, ScatterFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const Vector& counts : counts_to_try()) {
      const Vector in = rank_ == root ? gathered(counts) : Vector();
      Vector out(index(counts[index(rank_)]) + 1, kUntouched);
      scatter(rank_ == root ? in.data() : nullptr, out.data(), counts, kType, root, world_);
      EXPECT_EQ(out.back(), kUntouched);
      out.pop_back();
      EXPECT_EQ(out, values(rank_, counts[index(rank_)]));
    }
  }
}

// `from` sends to `to` the piece of values(from) that starts at 100 * to.
template <class Count>
void expect_all_to_all(CommView comm, Count&& count) {
  Vector send_counts, recv_counts, in, expected;
  for (int peer = 0; peer < comm.size(); ++peer) {
    send_counts.push_back(count(comm.rank(), peer));
    recv_counts.push_back(count(peer, comm.rank()));
    const Vector sent = values(comm.rank(), send_counts.back(), 100 * peer);
    const Vector received = values(peer, recv_counts.back(), 100 * comm.rank());
    in.insert(in.end(), sent.begin(), sent.end());
    expected.insert(expected.end(), received.begin(), received.end());
  }
  Vector out(expected.size(), kUntouched);
  all_to_all(in.data(), send_counts, out.data(), recv_counts, kType, comm);
  EXPECT_EQ(out, expected);
}

TEST_P(Collectives, AllToAll) {
  expect_all_to_all(world_, [](int from, int to) { return (3 * from + 2 * to) % 9; });
  expect_all_to_all(world_, [](int, int) { return 0; });
  expect_all_to_all(world_, [](int, int) { return 1; });
  expect_all_to_all(world_, [](int from, int to) { return from == 0 ? 20 + to : 0; });  // large on rank 0 only
  expect_all_to_all(world_, [this](int from, int to) { return from == 0 && to == size_ - 1 ? 40 : 0; });
}

TEST_P(Collectives, AllToAllOfEqualPieces) {
  for (const std::int64_t count : {0, 1, 5, 40}) {
    Vector in, expected;
    for (int peer = 0; peer < size_; ++peer) {
      const Vector sent = values(rank_, count, 100 * peer);
      const Vector received = values(peer, count, 100 * rank_);
      in.insert(in.end(), sent.begin(), sent.end());
      expected.insert(expected.end(), received.begin(), received.end());
    }
    Vector out(expected.size(), kUntouched);
    all_to_all(in.data(), out.data(), count, kType, world_);
    EXPECT_EQ(out, expected);
  }
}

TEST_P(Collectives, ReduceScatter) {
  for (const Vector& counts : counts_to_try()) {
    std::int64_t total = 0;
    std::int64_t first = 0;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) first = total;
      total += counts[index(rank)];
    }
    const Vector in = values(rank_, total);
    Vector out(index(counts[index(rank_)]) + 1, kUntouched);
    reduce_scatter(in.data(), out.data(), counts, kType, ReduceOp::kSum, world_);
    EXPECT_EQ(out.back(), kUntouched);
    out.pop_back();
    const Vector all = sum_of_ranks(0, size_, total);
    EXPECT_EQ(out, Vector(all.begin() + first, all.begin() + first + counts[index(rank_)]));
  }
}

TEST_P(Collectives, Scan) {
  for (const auto count : lengths_) {
    const Vector in = values(rank_, count);
    Vector out(index(count), kUntouched);
    scan(in.data(), out.data(), count, kType, ReduceOp::kSum, world_);
    EXPECT_EQ(out, sum_of_ranks(0, rank_ + 1, count));
    Vector both = in;
    scan(both.data(), both.data(), count, kType, ReduceOp::kSum, world_);
    EXPECT_EQ(both, out) << "in place, " << count;
  }
}

TEST_P(Collectives, ExclusiveScanKeepsTheOutputOfRankZero) {
  for (const auto count : lengths_) {
    const Vector in = values(rank_, count);
    Vector out(index(count), kUntouched);
    exscan(in.data(), out.data(), count, kType, ReduceOp::kSum, world_);
    EXPECT_EQ(out, rank_ == 0 ? Vector(index(count), kUntouched) : sum_of_ranks(0, rank_, count));
    Vector both = in;
    exscan(both.data(), both.data(), count, kType, ReduceOp::kSum, world_);
    EXPECT_EQ(both, rank_ == 0 ? in : out) << "in place, " << count;
  }
}

TEST_P(Collectives, NonBlockingCollectivesCanBeConcurrent) {
  for (const auto count : lengths_) {
    const Vector in = values(rank_, count);
    Vector sum(index(count), kUntouched);
    Vector copy = values(rank_, count);
    Vector both = in;
    Request request;
    all_reduce_start(in.data(), sum.data(), count, kType, ReduceOp::kSum, world_, request);
    broadcast_start(copy.data(), count, kType, size_ - 1, world_, request);
    all_reduce_start(both.data(), both.data(), count, kType, ReduceOp::kMax, world_, request);
    request.wait({.operation = "the test's collectives"});
    EXPECT_TRUE(request.done());
    EXPECT_EQ(sum, sum_of_ranks(0, size_, count));
    EXPECT_EQ(copy, values(size_ - 1, count));
    EXPECT_EQ(both, values(size_ - 1, count));  // the values increase with the rank
  }
}

TEST_P(Collectives, AllGatherStartCompletesInWait) {
  for (const Vector& counts : counts_to_try()) {
    const Vector in = values(rank_, counts[index(rank_)]);
    Vector out(gathered(counts).size(), kUntouched);
    Request request;
    all_gather_start(in.data(), out.data(), counts, kType, world_, request);
    request.wait({.operation = "all_gather"});
    EXPECT_EQ(out, gathered(counts));
  }
}

INSTANTIATE_TEST_SUITE_P(MaxCount, Collectives, testing::Values(std::int64_t{1} << 30, 7),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace weft::mpi
