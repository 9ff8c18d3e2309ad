// Communicator without failures: agreements, disagreements and several communicators at once.
#include "weft/mpi/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;

CommView world() { return CommView::world(); }

void expect_agrees(Communicator& communicator, std::uint64_t signature = 4711) {
  communicator.enter();
  const auto outcome = communicator.agree(Direction::kForward, {.signature = signature, .value = communicator.rank()});
  EXPECT_TRUE(outcome.same_call());
  EXPECT_EQ(outcome.value_min, 0);
  EXPECT_EQ(outcome.value_max, communicator.size() - 1);
}

TEST(Communicator, HasTheRanksOfItsOriginOnSeparateChannels) {
  const auto communicator = Communicator::over(world(), "here");
  EXPECT_EQ(communicator->rank(), world().rank());
  EXPECT_EQ(communicator->size(), world().size());
  EXPECT_EQ(communicator->name(), "here");
  EXPECT_FALSE(communicator->closed());
  const MPI_Comm comms[] = {communicator->origin().handle(),
                            communicator->control().handle(),
                            communicator->messages().handle(),
                            communicator->channel(Direction::kForward).handle(),
                            communicator->channel(Direction::kBackward).handle(),
                            world().handle()};
  for (const MPI_Comm a : comms) EXPECT_EQ(std::count(std::begin(comms), std::end(comms), a), 1);
}

TEST(Communicator, WorldIsCreatedOnce) { EXPECT_EQ(Communicator::world(), Communicator::world()); }

TEST(Communicator, AdoptsTheResultOfSplit) {
  const int rank = world().rank();
  const auto communicator = Communicator::adopt(world().split(rank % 2 == 0 ? 0 : -1, rank));
  EXPECT_EQ(communicator != nullptr, rank % 2 == 0);
  if (communicator != nullptr) expect_agrees(*communicator);
}

TEST(Communicator, KeepsTheTopologyOfItsOrigin) {
  const auto grid = world().cart({world().size()}, {true});
  const auto communicator = Communicator::over(grid);
  EXPECT_TRUE(communicator->origin().is_cart());
}

TEST(Communicator, FindReturnsOpenCommunicators) {
  auto communicator = Communicator::over(world());
  const auto other = Communicator::over(world());
  const auto id = communicator->id();
  EXPECT_NE(id, other->id());
  EXPECT_EQ(Communicator::find(id), communicator);
  communicator.reset();
  EXPECT_THROW(static_cast<void>(Communicator::find(id)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(Communicator::find(-5)), std::invalid_argument);
}

TEST(Communicator, ReversedHasTheRanksInReverseOrder) {
  const auto communicator = Communicator::over(world());
  for (const auto direction : {Direction::kForward, Direction::kBackward}) {
    EXPECT_EQ(communicator->reversed(direction).rank(), communicator->size() - 1 - communicator->rank());
    EXPECT_EQ(communicator->reversed(direction).handle(), communicator->reversed(direction).handle()) << "created once";
  }
}

TEST(Agreement, AllRanksLearnMinimumAndMaximum) {
  const auto communicator = Communicator::over(world());
  const int size = communicator->size();
  for (int round = 0; round < 20; ++round) {
    // A different rank has the extremes in each round.
    const int place = (communicator->rank() + round) % size;
    const auto direction = round % 3 == 0 ? Direction::kBackward : Direction::kForward;
    communicator->enter();
    const auto outcome = communicator->agree(direction, {.signature = 7, .value = -3 + 10 * place});
    EXPECT_TRUE(outcome.same_call());
    EXPECT_EQ(outcome.value_min, -3);
    EXPECT_EQ(outcome.value_max, -3 + 10 * (size - 1));
    EXPECT_EQ(outcome.same_value(), size == 1);
  }
}

TEST(Agreement, AllRanksDetectADifferentSignature) {
  const auto communicator = Communicator::over(world());
  for (int odd = 0; odd < communicator->size(); ++odd) {
    communicator->enter();
    const std::uint64_t mine =
        communicator->rank() == odd ? ~std::uint64_t{0} : 5;  // the largest unsigned value, not -1
    const auto outcome = communicator->agree(Direction::kForward, {.signature = mine});
    EXPECT_EQ(outcome.same_call(), communicator->size() == 1);
    EXPECT_EQ(outcome.signature_max, ~std::uint64_t{0});
  }
}

TEST(Agreement, MasksOfDifferentLevelsDoNotMix) {
  const auto communicator = Communicator::over(world());
  const auto bit = static_cast<LevelMask>(1U << static_cast<unsigned>(communicator->rank()));
  communicator->enter();
  const auto outcome = communicator->agree(
      Direction::kForward, {.wants_grad = bit, .grad_disabled = 0x8000, .has_tangent = static_cast<LevelMask>(~bit)});
  const auto all = static_cast<LevelMask>((1U << static_cast<unsigned>(communicator->size())) - 1);
  EXPECT_EQ(outcome.any_wants_grad, all);
  EXPECT_EQ(outcome.any_grad_disabled, 0x8000);
  EXPECT_EQ(outcome.any_has_tangent, communicator->size() == 1 ? 0xFFFE : 0xFFFF);
  EXPECT_FALSE(outcome.any_failed);
}

TEST(Agreement, EachFlagOfOneRankReachesAll) {
  const auto communicator = Communicator::over(world());
  for (int which = 0; which < 5; ++which) {
    for (int who = 0; who < communicator->size(); ++who) {
      AgreementInput input{.signature = 1};
      const bool set = communicator->rank() == who;
      input.wants_grad = set && which == 0;
      input.grad_disabled = set && which == 1;
      input.has_tangent = set && which == 2;
      input.failed = set && which == 3;  // no rank sets a flag in round 4
      communicator->enter();
      const auto outcome = communicator->agree(Direction::kBackward, input);
      EXPECT_EQ(outcome.any_wants_grad, which == 0);
      EXPECT_EQ(outcome.any_grad_disabled, which == 1);
      EXPECT_EQ(outcome.any_has_tangent, which == 2);
      EXPECT_EQ(outcome.any_failed, which == 3);
      EXPECT_EQ(outcome.same_call(), which != 3);
    }
  }
}

std::string disagreement(Communicator& communicator, const std::string& mine) {
  try {
    throw_disagreement(communicator, mine);
  } catch (const Disagreement& error) {
    return error.what();
  }
}

// Whether the text is equal on all ranks.
bool same_everywhere(const std::string& text) {
  long long seen[2] = {static_cast<long long>(std::hash<std::string>()(text)), 0};
  seen[1] = -seen[0];
  MPI_Allreduce(MPI_IN_PLACE, seen, 2, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
  return seen[0] == -seen[1];
}

TEST(Disagreement, ContainsTheDescriptionsOfAllRanks) {
  const auto communicator = Communicator::over(world(), "disagreeing");
  const std::string text =
      disagreement(*communicator, "called op" + std::string(static_cast<std::size_t>(communicator->rank()), '!'));
  EXPECT_TRUE(same_everywhere(text));
  EXPECT_THAT(text, HasSubstr("'disagreeing'"));
  for (int rank = 0; rank < communicator->size(); ++rank) {
    const std::string said = "called op" + std::string(static_cast<std::size_t>(rank), '!');
    EXPECT_THAT(text, HasSubstr("rank " + std::to_string(rank) + ": " + said));
  }
  expect_agrees(*communicator);
}

TEST(Disagreement, GroupsEqualDescriptionsIncludingEmptyOnes) {
  const auto communicator = Communicator::over(world());
  const std::string text = disagreement(*communicator, communicator->rank() == 0 ? "" : "scan of float32[3]");
  EXPECT_TRUE(same_everywhere(text));
  std::string others;
  for (int rank = 1; rank < communicator->size(); ++rank) others += (rank == 1 ? "rank " : ", ") + std::to_string(rank);
  EXPECT_THAT(text, HasSubstr("\n  rank 0: "));
  if (communicator->size() > 1) {
    EXPECT_THAT(text, HasSubstr("\n  " + others + ": scan of float32[3]"));
  }
}

TEST(Communicator, OneRankAgreesWithItself) {
  const auto communicator = Communicator::adopt(world().split(world().rank(), 0));
  EXPECT_EQ(communicator->size(), 1);
  expect_agrees(*communicator);
  communicator->raise_alarm("no other rank");
  expect_agrees(*communicator);
  EXPECT_THAT(disagreement(*communicator, "odd"), HasSubstr("rank 0: odd"));
}

TEST(Communicator, RejectsOperationsWhenClosed) {
  const auto communicator = Communicator::over(world(), "gone");
  communicator->close();
  communicator->close();
  EXPECT_TRUE(communicator->closed());
  communicator->raise_alarm("too late");
  try {
    communicator->enter();
    ADD_FAILURE() << "a closed communicator must throw";
  } catch (const Disagreement& error) {
    EXPECT_THAT(error.what(), HasSubstr("'gone'"));
  }
}

TEST(Communicator, MessagesOfTwoCommunicatorsDoNotMatch) {
  const auto one = Communicator::over(world(), "one");
  const auto two = Communicator::over(world(), "two");
  // Some ranks may be one agreement ahead of the others in one communicator while they agree in the other.
  expect_agrees(*one, 1);
  expect_agrees(*two, 2);
  expect_agrees(*two, 3);
  expect_agrees(*one, 4);
}

TEST(Communicator, TransferTagsAreValidAndAboveControlTags) {
  const auto communicator = Communicator::over(world());
  std::set<int> seen;
  for (int i = 0; i < 1000; ++i) {
    const int tag = communicator->transfer_tag(communicator->next_transfer());
    EXPECT_GE(tag, 256);
    EXPECT_LE(tag, world().tag_upper_bound());
    EXPECT_TRUE(seen.insert(tag).second);
  }
  EXPECT_LE(communicator->transfer_tag(std::int64_t{1} << 60), world().tag_upper_bound());
  EXPECT_GE(communicator->transfer_tag(std::int64_t{1} << 60), 256);
}

// Each one uses five MPI communicators. MPICH supports about 2,000, so they must be freed.
TEST(Communicator, HundredsCanBeCreatedAndFreed) {
  for (int i = 0; i < 600; ++i) {
    const auto communicator = Communicator::over(world());
    if (i % 50 == 0) expect_agrees(*communicator);
    if (i % 3 == 0) communicator->close();
  }
}

}  // namespace
}  // namespace weft::mpi
