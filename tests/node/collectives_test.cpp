// Every collective with sizes around the limits of the algorithms, operations in flight, mismatched calls and the
// fallback to MPI.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/eventually.h"
#include "tests/node/scoped_options.h"
#include "weft/mpi/chunks.h"
#include "weft/mpi/error.h"
#include "weft/node/all_gather.h"
#include "weft/node/all_reduce.h"
#include "weft/node/all_to_all.h"
#include "weft/node/broadcast.h"
#include "weft/node/gather.h"
#include "weft/node/reduce.h"
#include "weft/node/reduce_scatter.h"
#include "weft/node/reduction.h"
#include "weft/node/scatter.h"

namespace weft::node {
namespace {

using Values = std::vector<std::int64_t>;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

Values values(int rank, std::int64_t count) {
  Values result(index(count));
  for (std::int64_t i = 0; i < count; ++i) result[index(i)] = 1000 * (rank + 1) + 7 * i + (rank * i) % 5;
  return result;
}

Values sum(int ranks, std::int64_t count) {
  Values result(index(count), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const Values of_rank = values(rank, count);
    std::transform(result.begin(), result.end(), of_rank.begin(), result.begin(), std::plus<>());
  }
  return result;
}

Values part(const Values& whole, const Values& counts, int rank) {
  const auto first = whole.begin() + mpi::total_of(std::span(counts).first(index(rank)));
  return {first, first + counts[index(rank)]};
}

Values concatenated(const std::vector<Values>& parts) {
  Values whole;
  for (const Values& values : parts) whole.insert(whole.end(), values.begin(), values.end());
  return whole;
}

class Collectives : public testing::Test {
 protected:
  // Runs all collectives with `count` elements per rank, and uneven counts if there are several.
  void check_all(std::int64_t count) {
    SCOPED_TRACE(std::to_string(count) + " elements");
    check_reductions(count);
    for (int root = 0; root < size_; ++root) {
      Values data = rank_ == root ? values(root, count) : Values(index(count), -1);
      broadcast(data.data(), count, kType, root, comm_, {"broadcast"});
      EXPECT_EQ(data, values(root, count));
    }
    check_gathering(count);
  }

  void check_reductions(std::int64_t count) {
    const Values in = values(rank_, count);
    Values out(index(count), -1);
    all_reduce(in.data(), out.data(), count, kType, ReduceOp::kSum, comm_, {"all_reduce"});
    EXPECT_EQ(out, sum(size_, count));
    EXPECT_EQ(in, values(rank_, count)) << "must not change the input";
    Values in_place = in;
    all_reduce(in_place.data(), in_place.data(), count, kType, ReduceOp::kSum, comm_, {"all_reduce"});
    EXPECT_EQ(in_place, sum(size_, count));
    for (int root = 0; root < size_; ++root) {
      Values result(index(count), -1);
      reduce(in.data(), rank_ == root ? result.data() : nullptr, count, kType, ReduceOp::kSum, root, comm_, {"reduce"});
      EXPECT_EQ(result, rank_ == root ? sum(size_, count) : Values(index(count), -1));
    }
    const Values counts = uneven(count);
    const std::int64_t total = mpi::total_of(counts);
    const Values whole = values(rank_, total);
    Values mine(index(counts[index(rank_)]), -1);
    reduce_scatter(whole.data(), mine.data(), counts, kType, ReduceOp::kSum, comm_, {"reduce_scatter"});
    EXPECT_EQ(mine, part(sum(size_, total), counts, rank_));
  }

  void check_gathering(std::int64_t count) {
    const Values counts = uneven(count);
    std::vector<Values> parts;
    for (int rank = 0; rank < size_; ++rank) parts.push_back(values(rank, counts[index(rank)]));
    const Values& mine = parts[index(rank_)];
    const Values whole = concatenated(parts);
    Values all(whole.size(), -1);
    all_gather(mine.data(), all.data(), counts, kType, comm_, {"all_gather"});
    EXPECT_EQ(all, whole);
    for (int root = 0; root < size_; ++root) {
      Values gathered(rank_ == root ? whole.size() : 0, -1);
      gather(mine.data(), gathered.data(), counts, kType, root, comm_, {"gather"});
      if (rank_ == root) {
        EXPECT_EQ(gathered, whole);
      }
      Values scattered(mine.size(), -1);
      scatter(rank_ == root ? whole.data() : nullptr, scattered.data(), counts, kType, root, comm_, {"scatter"});
      EXPECT_EQ(scattered, mine);
    }
    std::vector<Values> received;
    for (int rank = 0; rank < size_; ++rank)
      received.push_back(part(values(rank, mpi::total_of(counts)), counts, rank_));
    const Values sent = values(rank_, mpi::total_of(counts));
    const Values receive_counts(index(size_), counts[index(rank_)]);
    Values exchanged(concatenated(received).size(), -1);
    all_to_all(sent.data(), counts, exchanged.data(), receive_counts, kType, comm_, {"all_to_all"});
    EXPECT_EQ(exchanged, concatenated(received));
  }

  [[nodiscard]] Values uneven(std::int64_t count) const {
    Values counts(index(size_));
    for (int rank = 0; rank < size_; ++rank) counts[index(rank)] = rank == 1 ? 0 : count + rank * (count > 0 ? 1 : 0);
    return counts;
  }

  static constexpr Datatype kType = Datatype::kInt64;
  const mpi::UniqueComm comm_ = mpi::CommView::world().dup("node");
  const int rank_ = comm_.rank();
  const int size_ = comm_.size();
};

TEST_F(Collectives, OfAnySize) {
  // Bytes: up to 24 next to the flags, one step up to 8 Ki, then chunks of 512 Ki.
  for (const std::int64_t count : {0, 1, 3, 4, 1001, 1024, 1025, 8191, 8193, 40'007, 300'007}) check_all(count);
}

TEST_F(Collectives, AcrossMemoryInSmallChunks) {
  Options options;
  options.one_step_bytes = options.two_step_bytes = options.copy_bytes = 1;
  options.chunk_bytes = 4096;
  const ScopedOptions scope(options);
  for (const std::int64_t count : {1, 511, 513, 5000}) check_all(count);
}

TEST_F(Collectives, WithoutCrossMemoryAttach) {
  Options options;
  options.cross_memory = rank_ != size_ - 1;  // a failure of one rank affects all
  const ScopedOptions scope(options);
  for (const std::int64_t count : {0, 1, 1001, 8193, 40'007}) check_all(count);
  if (const auto group = Group::of(comm_)) {
    EXPECT_FALSE(group->cross_memory());
  }
}

TEST_F(Collectives, WithoutASegment) {
  Options options;
  options.segment = rank_ != size_ - 1;
  const ScopedOptions scope(options);
  EXPECT_EQ(Group::of(comm_), nullptr);
  for (const std::int64_t count : {0, 1, 1001, 8193}) check_all(count);
}

TEST_F(Collectives, ReportAFallbackOnce) {
  Options options;
  options.segment = rank_ != size_ - 1;
  const ScopedOptions scope(options);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(std::shared_ptr<Group>(Group::of(comm_.dup("again"))), nullptr);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(printed.begin(), printed.end(), '\n'), 1) << printed;  // 0 if another test has caused it
}

TEST_F(Collectives, ShareAGroupPerCommunicator) {
  const auto group = Group::of(comm_);
  EXPECT_EQ(group == nullptr, size_ == 1);
  EXPECT_EQ(Group::of(comm_), group);
  if (group != nullptr) {
    EXPECT_NE(Group::of(comm_.dup("other")), group);
  }
}

TEST_F(Collectives, InFlightFinishInAnyOrder) {
  if (size_ == 1) GTEST_SKIP() << "a single rank has no group";
  constexpr int kOperations = 11;  // more than the group has slots
  const std::int64_t count = 30'001;
  std::vector<Values> data;
  std::vector<std::unique_ptr<mpi::Operation>> operations;
  for (int i = 0; i < kOperations; ++i) {
    data.push_back(values(rank_, i % 3 == 0 ? 10 : count));
    operations.push_back(start_all_reduce(data.back().data(), data.back().data(),
                                          static_cast<std::int64_t>(data.back().size()), kType, ReduceOp::kSum, comm_,
                                          nullptr));
  }
  std::vector<bool> done(kOperations, false);
  eventually(
      [&] {
        for (int i = 0; i < kOperations; ++i) {  // every rank starts with a different one
          const auto which = index((i + rank_) % kOperations);
          if (!done[which]) done[which] = operations[which]->advance();
        }
        return std::find(done.begin(), done.end(), false) == done.end();
      },
      "the end of all operations");
  for (const Values& result : data) EXPECT_EQ(result, sum(size_, static_cast<std::int64_t>(result.size())));
}

TEST_F(Collectives, AreBitIdenticalOnAllRanks) {
  for (const std::int64_t count : {100, 10'001, 500'001}) {
    std::vector<float> data(index(count));
    for (std::int64_t i = 0; i < count; ++i) data[index(i)] = std::sin(static_cast<float>(i + 31 * rank_)) * 1e3F;
    all_reduce(data.data(), data.data(), count, Datatype::kFloat32, ReduceOp::kSum, comm_, {"all_reduce"});
    std::vector<float> of_first(data);
    MPI_Bcast(of_first.data(), static_cast<int>(count), MPI_FLOAT, 0, comm_.handle());
    EXPECT_EQ(std::memcmp(data.data(), of_first.data(), index(count) * sizeof(float)), 0);
  }
}

TEST_F(Collectives, RejectDifferentSizesAndContinue) {
  if (size_ == 1) GTEST_SKIP() << "a single rank cannot disagree";
  const std::int64_t count = rank_ == 0 ? 10 : 20'000;
  Values data = values(rank_, count);
  EXPECT_THROW(all_reduce(data.data(), data.data(), count, kType, ReduceOp::kSum, comm_, {"all_reduce"}),
               std::length_error);
  check_all(100);
}

TEST_F(Collectives, TimeOutIfARankIsMissing) {
  if (size_ == 1) GTEST_SKIP() << "a single rank does not wait";
  static_cast<void>(Group::of(comm_));
  auto data = std::make_shared<Values>(values(rank_, 100'000));
  const std::weak_ptr<Values> kept = data;
  if (rank_ != 0) {
    std::int64_t* memory = data->data();
    auto operation = start_all_reduce(memory, memory, 100'000, kType, ReduceOp::kSum, comm_, std::move(data));
    mpi::Waiter waiter({.operation = "all_reduce", .timeout = std::chrono::milliseconds(200)});
    EXPECT_THROW(
        {
          while (!operation->advance()) waiter.idle();
        },
        mpi::TimeoutError);
    operation.reset();
    EXPECT_FALSE(kept.expired()) << "other ranks may still access the memory";
    Values next(10);
    EXPECT_THROW(all_reduce(next.data(), next.data(), 10, kType, ReduceOp::kSum, comm_, {"all_reduce"}), mpi::MpiError);
  }
  comm_.barrier();
}

}  // namespace
}  // namespace weft::node
