// Requests: completion, buffers that outlive them, and waits that end.
#include "weft/mpi/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "tests/mpi/scoped_options.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"
#include "weft/mpi/team.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;
constexpr int kTag = 11;

// Every rank receives from the one before it and sends to the one after it; on one rank that is itself.
class Requests : public testing::Test {
 protected:
  const Communicator ring_ = CommunicatorView::world().dup("ring");
  const int rank_ = ring_.rank();
  const int after_ = (rank_ + 1) % ring_.size();
  const int before_ = (rank_ + ring_.size() - 1) % ring_.size();

  void start_receive(Request& request, int* into, int tag = kTag) const {
    MPI_Irecv(into, 1, MPI_INT, before_, tag, ring_.handle(), request.add());
  }
  void send(int value, int tag = kTag) const { MPI_Send(&value, 1, MPI_INT, after_, tag, ring_.handle()); }
  void everybody_is_here() const { ring_.barrier(); }
};

TEST_F(Requests, EmptyOneIsDone) {
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
  EXPECT_EQ(data.use_count(), 1) << "a finished request lets its buffer go";
}

TEST_F(Requests, TestTellsWhenAllPartsAreDone) {
  int first = -1;
  int second = -1;
  Request request;
  start_receive(request, &first, 1);
  start_receive(request, &second, 2);
  EXPECT_FALSE(request.test());
  everybody_is_here();  // nobody has sent before all have looked
  send(10 + rank_, 2);
  EXPECT_FALSE(request.test());
  everybody_is_here();
  send(20 + rank_, 1);
  while (!request.test()) {
  }
  EXPECT_EQ(first, 20 + before_);
  EXPECT_EQ(second, 10 + before_);
}

TEST_F(Requests, MoveTakesEverythingAlong) {
  int value = -1;
  Request first;
  start_receive(first, &value);
  Request second(std::move(first));
  EXPECT_TRUE(first.done());  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_FALSE(second.done());
  send(rank_);
  second.wait({.operation = "recv"});
  EXPECT_EQ(value, before_);
}

// A buffer that tells where it ends: what it held when it was freed.
std::shared_ptr<int> buffer_that_tells(std::shared_ptr<int> last_words) {
  return {new int(-1), [last_words](int* data) {
            *last_words = *data;
            delete data;
          }};
}

TEST_F(Requests, AbandonedOneKeepsItsBufferUntilMpiIsDone) {
  const auto last_words = std::make_shared<int>(-2);
  ASSERT_EQ(Request::graveyard_size(), 0U);
  {
    auto data = buffer_that_tells(last_words);
    int* raw = data.get();
    Request request(std::move(data));
    start_receive(request, raw);
  }
  EXPECT_EQ(*last_words, -2) << "freed while MPI may still write into it";
  EXPECT_EQ(Request::graveyard_size(), 1U);
  everybody_is_here();
  send(rank_);
  while (Request::graveyard_size() > 0) {
  }
  EXPECT_EQ(*last_words, before_);
}

TEST_F(Requests, AssigningOverAnUnfinishedOneAbandonsIt) {
  const auto last_words = std::make_shared<int>(-2);
  auto data = buffer_that_tells(last_words);
  int* raw = data.get();
  Request request(std::move(data));
  start_receive(request, raw);
  request = Request();
  EXPECT_TRUE(request.done());
  EXPECT_EQ(Request::graveyard_size(), 1U);
  everybody_is_here();
  send(rank_);
  while (Request::graveyard_size() > 0) {
  }
  EXPECT_EQ(*last_words, before_);
}

TEST_F(Requests, WaitGivesUpAndNamesOperationAndRank) {
  const auto team = Team::over(ring_, "waiting");
  const auto data = std::make_shared<int>(-1);
  {
    const ScopedOptions hurry([](Options& options) { options.timeout = std::chrono::milliseconds(200); });
    Request request(data);
    start_receive(request, data.get());
    try {
      request.wait({.operation = "halo exchange", .team = team.get()});
      ADD_FAILURE() << "nobody has sent";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("halo exchange"));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank_) + " "));
      EXPECT_THAT(error.what(), HasSubstr("WEFT_TIMEOUT"));
    }
  }
  EXPECT_EQ(Request::graveyard_size(), 1U);
  everybody_is_here();
  send(rank_);
  while (Request::graveyard_size() > 0) {
  }
  EXPECT_EQ(*data, before_) << "a late message still lands where it was promised";
}

TEST_F(Requests, ExplanationIsPartOfTheTimeout) {
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
      ADD_FAILURE() << "nobody has sent";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr(", missing 42"));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank_) + " ")) << "without a team: rank in world";
    }
    everybody_is_here();
    send(rank_);
    while (!request.test()) {
    }
  }
  EXPECT_EQ(value, before_) << "after a timeout the request can still be completed";
}

}  // namespace
}  // namespace weft::mpi
