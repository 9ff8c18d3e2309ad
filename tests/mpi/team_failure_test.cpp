// Teams in trouble: late ranks, alarms, and working again afterwards. Rank 0 fails, the others notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/scoped_options.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/error.h"
#include "weft/mpi/parcel.h"
#include "weft/mpi/team.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;

ScopedOptions hurry() {
  return ScopedOptions([](Options& options) { options.timeout = std::chrono::milliseconds(200); });
}

class TeamFailure : public testing::Test {
 protected:
  void SetUp() override {
    if (world_.size() == 1) GTEST_SKIP() << "nobody to fail or to notice";
  }
  void everybody_is_here() const { world_.barrier(); }  // not on the team: it may be out of order

  // Enters until the alarm is seen, which may take MPI more than one look; the test's own time limit ends a miss.
  static void expect_alarm_from_0(Team& team, const std::string& cause) {
    try {
      for (;;) team.enter();
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("rank 0 failed"));
      EXPECT_THAT(error.what(), HasSubstr(cause));
    }
  }
  // Agreement, both channels and the reversed one work.
  static void expect_works(Team& team) {
    team.enter();
    EXPECT_TRUE(team.agree(Direction::kForward, {.signature = 99}).same_call());
    EXPECT_TRUE(team.agree(Direction::kBackward, {.signature = 98}).same_call());
    for (const auto direction : {Direction::kForward, Direction::kBackward}) {
      for (const auto comm : {team.channel(direction), team.reversed(direction)}) {
        std::int64_t sum = 1;
        all_reduce(&sum, &sum, 1, Datatype::kInt64, ReduceOp::kSum, comm);
        EXPECT_EQ(sum, team.size());
      }
    }
  }

  const CommunicatorView world_ = CommunicatorView::world();
  const std::shared_ptr<Team> team_ = Team::over(world_, "fragile");
};

TEST_F(TeamFailure, LateRankIsToldThatTheOthersGaveUp) {
  if (team_->rank() == 0) {
    const auto soon = hurry();
    team_->enter();
    try {
      static_cast<void>(team_->agree(Direction::kForward, {.signature = 1}));
      ADD_FAILURE() << "agreed without the others";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 "));
      EXPECT_THAT(error.what(), HasSubstr("no word from rank " + std::to_string(team_->size() - 1)));
    }
  }
  everybody_is_here();
  if (team_->rank() != 0) expect_alarm_from_0(*team_, "gave up after");
  expect_works(*team_);
}

// Their ballots are here when rank 0 comes, and so is much else: MPI may show it all of that before the alarm. It used
// to agree, with nobody. It must not hear from them through MPI that they are gone, so they leave files.
TEST_F(TeamFailure, LateRankDoesNotAgreeWithBallotsOfRanksThatGaveUp) {
  std::int64_t job = getpid();
  broadcast(&job, 1, Datatype::kInt64, 0, world_);
  const auto mark = [&](int rank) {
    return std::filesystem::temp_directory_path() /
           ("weft_gave_up_" + std::to_string(job) + "_" + std::to_string(rank));
  };
  constexpr int kLetters = 100;
  if (team_->rank() != 0) {
    std::vector<Request> letters(kLetters);
    for (Request& letter : letters) {
      ASSERT_EQ(MPI_Isend(nullptr, 0, MPI_BYTE, 0, 0, world_.handle(), letter.add()), MPI_SUCCESS);
    }
    {
      const auto soon = hurry();
      EXPECT_ANY_THROW(static_cast<void>(team_->agree(Direction::kForward, {.signature = 1})));
    }
    std::ofstream(mark(team_->rank())).put('x');
    for (Request& letter : letters) letter.wait({.operation = "test"});
  } else {
    for (int rank = 1; rank < team_->size(); ++rank) {
      while (!std::filesystem::exists(mark(rank))) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::filesystem::remove(mark(rank));
    }
    EXPECT_THROW(static_cast<void>(team_->agree(Direction::kForward, {.signature = 1})), PeerLost);
    for (int letter = 0; letter < kLetters * (team_->size() - 1); ++letter) {
      ASSERT_EQ(MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, 0, world_.handle(), MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
  }
  everybody_is_here();
  expect_works(*team_);
}

// Everybody but the last rank waits, and some give up before others notice: all must end up on the same channels.
TEST_F(TeamFailure, AllButOneGiveUpTogether) {
  const int late = team_->size() - 1;
  if (team_->rank() != late) {
    const auto soon = hurry();
    try {
      team_->enter();  // a slow rank hears of the failure here
      static_cast<void>(team_->agree(Direction::kForward, {.signature = 1}));
      ADD_FAILURE() << "agreed without rank " << late;
    } catch (const TimeoutError&) {
    } catch (const PeerLost& error) {
      EXPECT_NE(error.rank(), late);
    }
  }
  everybody_is_here();
  if (team_->rank() == late) {
    EXPECT_THROW(for (;;) team_->enter(), PeerLost);
  }
  expect_works(*team_);
}

// The retry begins to rebuild while the others are still away, and gives up again. It used to forget the duplicates it
// had begun, which the others' first ones then met, and the team never came together again.
TEST_F(TeamFailure, RebuildingCanTimeOutAndGoOnLater) {
  if (team_->rank() == 0) {
    const auto soon = hurry();
    team_->enter();
    EXPECT_THROW(static_cast<void>(team_->agree(Direction::kForward, {.signature = 1})), TimeoutError);
    EXPECT_THROW(team_->enter(), TimeoutError);
    EXPECT_THROW(team_->enter(), TimeoutError);
  }
  everybody_is_here();
  const ScopedOptions bounded([](Options& options) { options.timeout = std::chrono::seconds(20); });
  if (team_->rank() != 0) expect_alarm_from_0(*team_, "gave up after");
  expect_works(*team_);
}

TEST_F(TeamFailure, AlarmEndsAWaitForAgreement) {
  team_->enter();
  everybody_is_here();  // or a slow rank would hear the alarm as it enters
  if (team_->rank() == 0) {
    team_->raise_alarm("disk full");
  } else {
    try {
      static_cast<void>(team_->agree(Direction::kBackward, {.signature = 1}));
      ADD_FAILURE() << "agreed without rank 0";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("disk full"));
    }
  }
  everybody_is_here();
  expect_works(*team_);
}

TEST_F(TeamFailure, AlarmEndsAWaitForAParcel) {
  team_->enter();
  everybody_is_here();  // or a slow rank would hear the alarm as it enters
  if (team_->rank() == 0) {
    team_->raise_alarm("out of memory");
  } else {
    IncomingParcel incoming(*team_, Direction::kForward, 0, 3);
    try {
      incoming.wait_label();
      ADD_FAILURE() << "rank 0 sent nothing";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("out of memory"));
    }
  }
  everybody_is_here();
  expect_works(*team_);
}

TEST_F(TeamFailure, AlarmStaysInItsTeam) {
  const auto calm = Team::over(world_, "calm");
  if (team_->rank() == 0) team_->raise_alarm("only here");
  everybody_is_here();
  expect_works(*calm);
  if (team_->rank() != 0) expect_alarm_from_0(*team_, "only here");
  expect_works(*team_);
  expect_works(*calm);
}

TEST_F(TeamFailure, AlarmEverywhereReachesEveryTeam) {
  const auto second = Team::over(world_, "second");
  if (team_->rank() == 0) raise_alarm_everywhere("the process dies");
  everybody_is_here();
  for (const auto& team : {team_, second}) {
    if (team->rank() != 0) expect_alarm_from_0(*team, "the process dies");
    expect_works(*team);
  }
}

TEST_F(TeamFailure, LongAndEmptyCausesArrive) {
  for (const std::string& cause : {std::string(), std::string(100'000, 'x') + "end"}) {
    if (team_->rank() == 0) team_->raise_alarm(cause);
    if (team_->rank() != 0) expect_alarm_from_0(*team_, cause);
    expect_works(*team_);
  }
}

TEST_F(TeamFailure, FailsAndRecoversAgainAndAgain) {
  for (int i = 0; i < 20; ++i) {
    if (team_->rank() == 0) team_->raise_alarm("failure " + std::to_string(i));
    if (team_->rank() != 0) expect_alarm_from_0(*team_, "failure " + std::to_string(i));
    expect_works(*team_);
  }
}

TEST_F(TeamFailure, ClosingABrokenTeamIsFine) {
  if (team_->rank() == 0) team_->raise_alarm("never mind");
  team_->close();
  everybody_is_here();
  EXPECT_THROW(team_->enter(), Disagreement);
}

// MPI keeps what comes for a freed communicator, and hands it to the next one that gets the same number.
TEST_F(TeamFailure, AlarmThatNobodyHeardDoesNotReachTheNextTeam) {
  for (int round = 0; round < 100; ++round) {
    auto doomed = Team::over(world_, "doomed");
    if (doomed->rank() == 0) doomed->raise_alarm("for the doomed team only");
    doomed.reset();
    const auto fresh = Team::over(world_, "fresh");
    ASSERT_NO_THROW(expect_works(*fresh)) << "in round " << round;
  }
}

}  // namespace
}  // namespace weft::mpi
