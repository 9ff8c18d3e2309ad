// Communicator failures: late ranks, alarms and recovery. Rank 0 fails, and the other ranks detect it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/eventually.h"
#include "tests/mpi/scoped_options.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/parcel.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;

ScopedOptions hurry() {
  return ScopedOptions([](Options& options) { options.timeout = std::chrono::milliseconds(200); });
}

class CommunicatorFailure : public testing::Test {
 protected:
  void SetUp() override {
    if (world_.size() == 1) GTEST_SKIP() << "needs at least two ranks";
  }
  void barrier() const { world_.barrier(); }  // not on the communicator, which may be broken

  // Calls enter() until it throws: MPI may need several probes to find the alarm.
  static void expect_alarm_from_0(Communicator& communicator, const std::string& cause) {
    try {
      eventually(
          [&] {
            communicator.enter();
            return false;
          },
          "an alarm");
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("rank 0 failed"));
      EXPECT_THAT(error.what(), HasSubstr(cause));
    }
  }
  // Checks agreements, both channels and the reversed communicators.
  static void expect_works(Communicator& communicator) {
    communicator.enter();
    EXPECT_TRUE(communicator.agree(Direction::kForward, {.signature = 99}).same_call());
    EXPECT_TRUE(communicator.agree(Direction::kBackward, {.signature = 98}).same_call());
    for (const auto direction : {Direction::kForward, Direction::kBackward}) {
      for (const auto comm : {communicator.channel(direction), communicator.reversed(direction)}) {
        std::int64_t sum = 1;
        all_reduce(&sum, &sum, 1, Datatype::kInt64, ReduceOp::kSum, comm);
        EXPECT_EQ(sum, communicator.size());
      }
    }
  }

  const CommView world_ = CommView::world();
  const std::shared_ptr<Communicator> communicator_ = Communicator::over(world_, "fragile");
};

TEST_F(CommunicatorFailure, LateRankLearnsThatTheOthersTimedOut) {
  if (communicator_->rank() == 0) {
    const auto soon = hurry();
    communicator_->enter();
    try {
      static_cast<void>(communicator_->agree(Direction::kForward, {.signature = 1}));
      ADD_FAILURE() << "agreed without the others";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 "));
      EXPECT_THAT(error.what(), HasSubstr("no message from rank " + std::to_string(communicator_->size() - 1)));
    }
  }
  barrier();
  if (communicator_->rank() != 0) expect_alarm_from_0(*communicator_, "gave up after");
  expect_works(*communicator_);
}

// When rank 0 arrives, the agreement messages of the other ranks and many others are waiting, and MPI may deliver all
// of them before the alarm. Rank 0 used to agree although the other ranks had given up. The other ranks signal that
// with files, because an MPI message would let rank 0 make progress.
TEST_F(CommunicatorFailure, LateRankDoesNotAgreeWithRanksThatGaveUp) {
  std::int64_t job = getpid();
  broadcast(&job, 1, Datatype::kInt64, 0, world_);
  const auto mark = [&](int rank) {
    return std::filesystem::temp_directory_path() /
           ("weft_gave_up_" + std::to_string(job) + "_" + std::to_string(rank));
  };
  constexpr int kMessages = 100;
  if (communicator_->rank() != 0) {
    std::vector<Request> messages(kMessages);
    for (Request& message : messages) {
      ASSERT_EQ(MPI_Isend(nullptr, 0, MPI_BYTE, 0, 0, world_.handle(), message.add()), MPI_SUCCESS);
    }
    {
      const auto soon = hurry();
      EXPECT_ANY_THROW(static_cast<void>(communicator_->agree(Direction::kForward, {.signature = 1})));
    }
    std::ofstream(mark(communicator_->rank())).put('x');
    for (Request& message : messages) message.wait({.operation = "test"});
  } else {
    for (int rank = 1; rank < communicator_->size(); ++rank) {
      eventually([&] { return std::filesystem::exists(mark(rank)); }, "the file of rank " + std::to_string(rank));
      std::filesystem::remove(mark(rank));
    }
    EXPECT_THROW(static_cast<void>(communicator_->agree(Direction::kForward, {.signature = 1})), PeerLost);
    for (int message = 0; message < kMessages * (communicator_->size() - 1); ++message) {
      ASSERT_EQ(MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, 0, world_.handle(), MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
  }
  barrier();
  expect_works(*communicator_);
}

// All ranks except the last one wait, and some give up earlier than others. All must end up on the same channels.
TEST_F(CommunicatorFailure, AllRanksButOneTimeOut) {
  const int late = communicator_->size() - 1;
  if (communicator_->rank() != late) {
    const auto soon = hurry();
    try {
      communicator_->enter();  // a slow rank receives the alarm here
      static_cast<void>(communicator_->agree(Direction::kForward, {.signature = 1}));
      ADD_FAILURE() << "agreed without rank " << late;
    } catch (const TimeoutError&) {
    } catch (const PeerLost& error) {
      EXPECT_NE(error.rank(), late);
    }
  }
  barrier();
  if (communicator_->rank() == late) {
    const auto poll = [&] {
      communicator_->enter();
      return false;
    };
    EXPECT_THROW(eventually(poll, "an alarm"), PeerLost);
  }
  expect_works(*communicator_);
}

// The retry starts to rebuild while the other ranks are still absent, and times out again. It used to discard the
// duplicates that it had started. Those of the other ranks then matched the discarded ones, and the communicator never
// recovered.
TEST_F(CommunicatorFailure, RebuildCanTimeOutAndContinueLater) {
  if (communicator_->rank() == 0) {
    const auto soon = hurry();
    communicator_->enter();
    EXPECT_THROW(static_cast<void>(communicator_->agree(Direction::kForward, {.signature = 1})), TimeoutError);
    EXPECT_THROW(communicator_->enter(), TimeoutError);
    EXPECT_THROW(communicator_->enter(), TimeoutError);
  }
  barrier();
  const ScopedOptions bounded([](Options& options) { options.timeout = std::chrono::seconds(20); });
  if (communicator_->rank() != 0) expect_alarm_from_0(*communicator_, "gave up after");
  expect_works(*communicator_);
}

TEST_F(CommunicatorFailure, AlarmInterruptsAnAgreement) {
  communicator_->enter();
  barrier();  // otherwise a slow rank could receive the alarm in enter()
  if (communicator_->rank() == 0) {
    communicator_->raise_alarm("disk full");
  } else {
    try {
      static_cast<void>(communicator_->agree(Direction::kBackward, {.signature = 1}));
      ADD_FAILURE() << "agreed without rank 0";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("disk full"));
    }
  }
  barrier();
  expect_works(*communicator_);
}

TEST_F(CommunicatorFailure, AlarmInterruptsAParcelReceive) {
  communicator_->enter();
  barrier();  // otherwise a slow rank could receive the alarm in enter()
  if (communicator_->rank() == 0) {
    communicator_->raise_alarm("out of memory");
  } else {
    IncomingParcel incoming(*communicator_, communicator_->messages(), 0, 3);
    try {
      incoming.wait_label();
      ADD_FAILURE() << "rank 0 sent nothing";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("out of memory"));
    }
  }
  barrier();
  expect_works(*communicator_);
}

// Otherwise a rank that leaves an operation of one communicator would make others wait in the second one.
TEST_F(CommunicatorFailure, AlarmReachesEveryCommunicatorAndRaisesOnce) {
  const auto second = Communicator::over(world_, "second");
  if (communicator_->rank() == 0) communicator_->raise_alarm("disk full");
  barrier();
  if (communicator_->rank() != 0) expect_alarm_from_0(*second, "disk full");
  expect_works(*second);
  expect_works(*communicator_);
}

// Rank 0 shares no communicator with the last rank, but the others pass its alarm on.
TEST_F(CommunicatorFailure, AlarmIsPassedOnToOtherCommunicators) {
  const int last = world_.size() - 1;
  if (last < 2) GTEST_SKIP() << "needs three ranks";
  const auto left = Communicator::adopt(world_.split(world_.rank() == last ? MPI_UNDEFINED : 0, 0));
  const auto right = Communicator::adopt(world_.split(world_.rank() == 0 ? MPI_UNDEFINED : 0, 0));
  if (world_.rank() == 0) left->raise_alarm("disk full");
  if (world_.rank() != 0 && world_.rank() != last) expect_alarm_from_0(*left, "disk full");
  if (world_.rank() == last) {
    try {
      right->enter();
      static_cast<void>(right->agree(Direction::kForward, {.signature = 1}));
      ADD_FAILURE() << "agreed without the other ranks";
    } catch (const PeerLost& error) {
      EXPECT_THAT(error.what(), HasSubstr("disk full"));
    }
  }
  for (const auto& communicator : {left, right}) {
    if (communicator) expect_works(*communicator);
  }
}

TEST_F(CommunicatorFailure, AlarmTellsWhetherTheProcessEnds) {
  for (const bool terminates : {false, true}) {
    if (communicator_->rank() == 0) {
      raise_alarm_everywhere({"failure", terminates});
    } else {
      try {
        communicator_->enter();
        static_cast<void>(communicator_->agree(Direction::kForward, {.signature = 1}));
        ADD_FAILURE() << "agreed without rank 0";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.terminated(), terminates);
      }
    }
    expect_works(*communicator_);
  }
}

TEST_F(CommunicatorFailure, AlarmSkipsTheInformedCommunicator) {
  const auto informed = Communicator::over(world_, "informed");
  if (communicator_->rank() == 0) communicator_->raise_alarm("disk full", informed->id());
  barrier();
  if (communicator_->rank() != 0) informed->enter();
  barrier();
  if (communicator_->rank() != 0) expect_alarm_from_0(*communicator_, "disk full");
  expect_works(*communicator_);
}

// Rank 0 fails after an agreement while other ranks are still in it. Ranks that have completed it may be in a blocking
// call of MPI, so no rank may leave it.
TEST_F(CommunicatorFailure, AlarmDoesNotInterruptAnAgreementThatAllRanksEntered) {
  for (int i = 0; i < 200; ++i) {
    communicator_->enter();
    ASSERT_NO_THROW(static_cast<void>(communicator_->agree(Direction::kForward, {.signature = 1}))) << "pass " << i;
    if (communicator_->rank() == 0) communicator_->raise_alarm("disk full");
    if (communicator_->rank() != 0) expect_alarm_from_0(*communicator_, "disk full");
    expect_works(*communicator_);
  }
}

TEST_F(CommunicatorFailure, DeliversLongAndEmptyCauses) {
  for (const std::string& cause : {std::string(), std::string(100'000, 'x') + "end"}) {
    if (communicator_->rank() == 0) communicator_->raise_alarm(cause);
    if (communicator_->rank() != 0) expect_alarm_from_0(*communicator_, cause);
    expect_works(*communicator_);
  }
}

TEST_F(CommunicatorFailure, RecoversRepeatedly) {
  for (int i = 0; i < 20; ++i) {
    if (communicator_->rank() == 0) communicator_->raise_alarm("failure " + std::to_string(i));
    if (communicator_->rank() != 0) expect_alarm_from_0(*communicator_, "failure " + std::to_string(i));
    expect_works(*communicator_);
  }
}

TEST_F(CommunicatorFailure, BrokenCommunicatorCanBeClosed) {
  if (communicator_->rank() == 0) communicator_->raise_alarm("closing");
  communicator_->close();
  barrier();
  EXPECT_THROW(communicator_->enter(), Disagreement);
}

// MPI keeps messages for a freed communicator and delivers them to the next one with the same context id.
TEST_F(CommunicatorFailure, UnreceivedAlarmDoesNotReachTheNextCommunicator) {
  for (int round = 0; round < 100; ++round) {
    auto doomed = Communicator::over(world_, "doomed");
    if (doomed->rank() == 0) doomed->raise_alarm("for the doomed communicator only");
    doomed.reset();
    const auto fresh = Communicator::over(world_, "fresh");
    ASSERT_NO_THROW(expect_works(*fresh)) << "in round " << round;
  }
}

}  // namespace
}  // namespace weft::mpi
