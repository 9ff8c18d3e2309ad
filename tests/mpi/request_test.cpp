// Request: completion, buffers that outlive it, and timeouts.
#include "weft/mpi/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "tests/eventually.h"
#include "tests/mpi/scoped_options.h"
#include "weft/mpi/comm.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;
constexpr int kTag = 11;

// Every rank receives from the previous rank and sends to the next one. A single rank uses itself.
class Requests : public testing::Test {
 protected:
  const UniqueComm ring_ = CommView::world().dup("ring");
  const int rank_ = ring_.rank();
  const int after_ = (rank_ + 1) % ring_.size();
  const int before_ = (rank_ + ring_.size() - 1) % ring_.size();

  void start_receive(Request& request, int* into, int tag = kTag) const {
    MPI_Irecv(into, 1, MPI_INT, before_, tag, ring_.handle(), request.add());
  }
  void send(int value, int tag = kTag) const { MPI_Send(&value, 1, MPI_INT, after_, tag, ring_.handle()); }
  void barrier() const { ring_.barrier(); }
};

TEST_F(Requests, EmptyRequestIsDone) {
  Request request;
  EXPECT_TRUE(request.done());
  EXPECT_TRUE(request.test());
  request.wait({.operation = "nothing"});
}

TEST_F(Requests, WaitDeliversDataAndStatus) {
  const auto data = std::make_shared<int>(-1);
  Request request(data);
  start_receive(request, data.get());
  EXPECT_FALSE(request.done());
  send(rank_);
  request.wait({.operation = "recv"});
  EXPECT_TRUE(request.done());
  EXPECT_EQ(*data, before_);
  EXPECT_EQ(request.status().MPI_SOURCE, before_);
  EXPECT_EQ(request.status().MPI_TAG, kTag);
  EXPECT_EQ(data.use_count(), 1) << "a finished request releases its buffer";
}

TEST_F(Requests, TestReturnsTrueWhenAllPartsAreDone) {
  int first = -1;
  int second = -1;
  Request request;
  start_receive(request, &first, 1);
  start_receive(request, &second, 2);
  EXPECT_FALSE(request.test());
  barrier();  // no rank sends before all have tested
  send(10 + rank_, 2);
  EXPECT_FALSE(request.test());
  barrier();
  send(20 + rank_, 1);
  eventually([&] { return request.test(); }, "both messages");
  EXPECT_EQ(first, 20 + before_);
  EXPECT_EQ(second, 10 + before_);
}

TEST_F(Requests, MoveTransfersOwnership) {
  int value = -1;
  Request first;
  start_receive(first, &value);
  Request second(std::move(first));
  EXPECT_TRUE(first.done());  // NOLINT(bugprone-use-after-move): on purpose
  EXPECT_FALSE(second.done());
  send(rank_);
  second.wait({.operation = "recv"});
  EXPECT_EQ(value, before_);
}

// A buffer that reports its value when it is freed.
std::shared_ptr<int> buffer_that_tells(std::shared_ptr<int> value_when_freed) {
  return {new int(-1), [value_when_freed](int* data) {
            *value_when_freed = *data;
            delete data;
          }};
}

TEST_F(Requests, AbandonedRequestKeepsItsBufferUntilMpiIsDone) {
  const auto value_when_freed = std::make_shared<int>(-2);
  ASSERT_EQ(Request::abandoned_count(), 0U);
  {
    auto data = buffer_that_tells(value_when_freed);
    int* raw = data.get();
    Request request(std::move(data));
    start_receive(request, raw);
  }
  EXPECT_EQ(*value_when_freed, -2) << "freed while MPI may still write into it";
  EXPECT_EQ(Request::abandoned_count(), 1U);
  barrier();
  send(rank_);
  while (Request::abandoned_count() > 0) {
  }
  EXPECT_EQ(*value_when_freed, before_);
}

TEST_F(Requests, AssignmentAbandonsAnUnfinishedRequest) {
  const auto value_when_freed = std::make_shared<int>(-2);
  auto data = buffer_that_tells(value_when_freed);
  int* raw = data.get();
  Request request(std::move(data));
  start_receive(request, raw);
  request = Request();
  EXPECT_TRUE(request.done());
  EXPECT_EQ(Request::abandoned_count(), 1U);
  barrier();
  send(rank_);
  while (Request::abandoned_count() > 0) {
  }
  EXPECT_EQ(*value_when_freed, before_);
}

TEST_F(Requests, TimeoutNamesOperationAndRank) {
  const auto communicator = Communicator::over(ring_, "waiting");
  const auto data = std::make_shared<int>(-1);
  {
    const ScopedOptions hurry([](Options& options) { options.timeout = std::chrono::milliseconds(200); });
    Request request(data);
    start_receive(request, data.get());
    try {
      request.wait({.operation = "halo exchange", .communicator = communicator.get()});
      ADD_FAILURE() << "no rank has sent";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("halo exchange"));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank_) + " "));
      EXPECT_THAT(error.what(), HasSubstr("WEFT_TIMEOUT"));
    }
  }
  EXPECT_EQ(Request::abandoned_count(), 1U);
  barrier();
  send(rank_);
  while (Request::abandoned_count() > 0) {
  }
  EXPECT_EQ(*data, before_) << "a late message still arrives in its buffer";
}

TEST_F(Requests, TimeoutContainsTheExplanation) {
  const ScopedOptions hurry([](Options& options) { options.timeout = std::chrono::milliseconds(50); });
  const int missing = 42;
  const auto explain = [](const void* subject) {
    return ", missing " + std::to_string(*static_cast<const int*>(subject));
  };
  int value = -1;
  {
    Request request;
    start_receive(request, &value);
    try {
      request.wait({.operation = "recv", .explain = explain, .subject = &missing});
      ADD_FAILURE() << "no rank has sent";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr(", missing 42"));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank_) + " "))
          << "without a communicator, the rank in the world";
    }
    barrier();
    send(rank_);
    eventually([&] { return request.test(); }, "the late message");
  }
  EXPECT_EQ(value, before_) << "after a timeout the request can still be completed";
}

}  // namespace
}  // namespace weft::mpi
