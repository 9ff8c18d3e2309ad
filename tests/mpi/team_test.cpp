// Teams at peace: agreements, disagreements, and teams beside each other.
#include "weft/mpi/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;

CommunicatorView world() { return CommunicatorView::world(); }

void expect_agrees(Team& team, std::uint64_t signature = 4711) {
  team.enter();
  const auto outcome = team.agree(Direction::kForward, {.signature = signature, .value = team.rank()});
  EXPECT_TRUE(outcome.same_call());
  EXPECT_EQ(outcome.value_min, 0);
  EXPECT_EQ(outcome.value_max, team.size() - 1);
}

TEST(Team, HasTheRanksOfItsCommunicatorOnChannelsOfItsOwn) {
  const auto team = Team::over(world(), "here");
  EXPECT_EQ(team->rank(), world().rank());
  EXPECT_EQ(team->size(), world().size());
  EXPECT_EQ(team->name(), "here");
  EXPECT_FALSE(team->closed());
  const MPI_Comm comms[] = {team->origin().handle(), team->control().handle(),
                            team->channel(Direction::kForward).handle(), team->channel(Direction::kBackward).handle(),
                            world().handle()};
  for (const MPI_Comm a : comms) EXPECT_EQ(std::count(std::begin(comms), std::end(comms), a), 1);
}

TEST(Team, WorldIsMadeOnce) { EXPECT_EQ(Team::world(), Team::world()); }

TEST(Team, AdoptsWhatSplitGives) {
  const int rank = world().rank();
  const auto team = Team::adopt(world().split(rank % 2 == 0 ? 0 : -1, rank));
  EXPECT_EQ(team != nullptr, rank % 2 == 0);
  if (team != nullptr) expect_agrees(*team);
}

TEST(Team, KeepsTheGridOfItsOrigin) {
  const auto grid = world().cart({world().size()}, {true});
  const auto team = Team::over(grid);
  EXPECT_TRUE(team->origin().is_cart());
}

TEST(Team, IsFoundByNumberWhileItLives) {
  auto team = Team::over(world());
  const auto other = Team::over(world());
  const auto id = team->id();
  EXPECT_NE(id, other->id());
  EXPECT_EQ(Team::find(id), team);
  team.reset();
  EXPECT_THROW(static_cast<void>(Team::find(id)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(Team::find(-5)), std::invalid_argument);
}

TEST(Team, ReversedTurnsTheRanksAround) {
  const auto team = Team::over(world());
  for (const auto direction : {Direction::kForward, Direction::kBackward}) {
    EXPECT_EQ(team->reversed(direction).rank(), team->size() - 1 - team->rank());
    EXPECT_EQ(team->reversed(direction).handle(), team->reversed(direction).handle()) << "made once";
  }
}

TEST(Agreement, EverybodyLearnsSmallestAndLargest) {
  const auto team = Team::over(world());
  const int size = team->size();
  for (int round = 0; round < 20; ++round) {
    // The extremes come from another rank each time.
    const int place = (team->rank() + round) % size;
    const auto direction = round % 3 == 0 ? Direction::kBackward : Direction::kForward;
    team->enter();
    const auto outcome = team->agree(direction, {.signature = 7, .value = -3 + 10 * place});
    EXPECT_TRUE(outcome.same_call());
    EXPECT_EQ(outcome.value_min, -3);
    EXPECT_EQ(outcome.value_max, -3 + 10 * (size - 1));
    EXPECT_EQ(outcome.same_value(), size == 1);
  }
}

TEST(Agreement, OneDifferentSignatureIsNoticedByAll) {
  const auto team = Team::over(world());
  for (int odd = 0; odd < team->size(); ++odd) {
    team->enter();
    const std::uint64_t mine = team->rank() == odd ? ~std::uint64_t{0} : 5;  // unsigned: not -1
    const auto outcome = team->agree(Direction::kForward, {.signature = mine});
    EXPECT_EQ(outcome.same_call(), team->size() == 1);
    EXPECT_EQ(outcome.signature_max, ~std::uint64_t{0});
  }
}

TEST(Agreement, EachFlagOfOneRankReachesAll) {
  const auto team = Team::over(world());
  for (int which = 0; which < 5; ++which) {
    for (int who = 0; who < team->size(); ++who) {
      Vote vote{.signature = 1};
      const bool set = team->rank() == who;
      vote.wants_grad = set && which == 0;
      vote.grad_disabled = set && which == 1;
      vote.has_tangent = set && which == 2;
      vote.failed = set && which == 3;  // and in round 4 nobody says anything
      team->enter();
      const auto outcome = team->agree(Direction::kBackward, vote);
      EXPECT_EQ(outcome.any_wants_grad, which == 0);
      EXPECT_EQ(outcome.any_grad_disabled, which == 1);
      EXPECT_EQ(outcome.any_has_tangent, which == 2);
      EXPECT_EQ(outcome.any_failed, which == 3);
      EXPECT_EQ(outcome.same_call(), which != 3);
    }
  }
}

std::string disagreement(Team& team, const std::string& mine) {
  try {
    team.disagree(mine);
  } catch (const Disagreement& error) {
    return error.what();
  }
}

// Whether the text is the same on all ranks.
bool same_everywhere(const std::string& text) {
  long long seen[2] = {static_cast<long long>(std::hash<std::string>()(text)), 0};
  seen[1] = -seen[0];
  MPI_Allreduce(MPI_IN_PLACE, seen, 2, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
  return seen[0] == -seen[1];
}

TEST(Disagreement, TellsEveryRankWhatEachRankSaid) {
  const auto team = Team::over(world(), "quarrel");
  const std::string text = disagreement(*team, "called op" + std::string(static_cast<std::size_t>(team->rank()), '!'));
  EXPECT_TRUE(same_everywhere(text));
  EXPECT_THAT(text, HasSubstr("'quarrel'"));
  for (int rank = 0; rank < team->size(); ++rank) {
    const std::string said = "called op" + std::string(static_cast<std::size_t>(rank), '!');
    EXPECT_THAT(text, HasSubstr("rank " + std::to_string(rank) + ": " + said));
  }
  expect_agrees(*team);
}

TEST(Disagreement, GroupsRanksThatSaidTheSameEvenNothing) {
  const auto team = Team::over(world());
  const std::string text = disagreement(*team, team->rank() == 0 ? "" : "scan of float32[3]");
  EXPECT_TRUE(same_everywhere(text));
  std::string others;
  for (int rank = 1; rank < team->size(); ++rank) others += (rank == 1 ? "rank " : ", ") + std::to_string(rank);
  EXPECT_THAT(text, HasSubstr("\n  rank 0: "));
  if (team->size() > 1) {
    EXPECT_THAT(text, HasSubstr("\n  " + others + ": scan of float32[3]"));
  }
}

TEST(Team, AloneItAgreesWithItself) {
  const auto team = Team::adopt(world().split(world().rank(), 0));
  EXPECT_EQ(team->size(), 1);
  expect_agrees(*team);
  team->raise_alarm("nobody hears this");
  expect_agrees(*team);
  EXPECT_THAT(disagreement(*team, "odd"), HasSubstr("rank 0: odd"));
}

TEST(Team, ClosedItRefusesOperations) {
  const auto team = Team::over(world(), "gone");
  team->close();
  team->close();
  EXPECT_TRUE(team->closed());
  team->raise_alarm("too late");
  try {
    team->enter();
    ADD_FAILURE() << "entered a closed team";
  } catch (const Disagreement& error) {
    EXPECT_THAT(error.what(), HasSubstr("'gone'"));
  }
}

TEST(Team, TwoOfThemDoNotMeet) {
  const auto one = Team::over(world(), "one");
  const auto two = Team::over(world(), "two");
  // Some ranks are an agreement ahead of the others in one team while they agree in the other.
  expect_agrees(*one, 1);
  expect_agrees(*two, 2);
  expect_agrees(*two, 3);
  expect_agrees(*one, 4);
}

TEST(Team, TransferTagsAreLegalAndFarFromControlTags) {
  const auto team = Team::over(world());
  std::set<int> seen;
  for (int i = 0; i < 1000; ++i) {
    const int tag = team->transfer_tag(team->next_transfer());
    EXPECT_GE(tag, 256);
    EXPECT_LE(tag, world().tag_upper_bound());
    EXPECT_TRUE(seen.insert(tag).second);
  }
  EXPECT_LE(team->transfer_tag(std::int64_t{1} << 60), world().tag_upper_bound());
  EXPECT_GE(team->transfer_tag(std::int64_t{1} << 60), 256);
}

// Four communicators each: MPICH has about 2,000 in all, so they must be given back.
TEST(Team, HundredsComeAndGo) {
  for (int i = 0; i < 600; ++i) {
    const auto team = Team::over(world());
    if (i % 50 == 0) expect_agrees(*team);
    if (i % 3 == 0) team->close();
  }
}

}  // namespace
}  // namespace weft::mpi
