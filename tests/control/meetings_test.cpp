#include "weft/control/meetings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

namespace weft::control {
namespace {

using Answer = Meetings::Answer;

// Remembers what a caller was told.
struct Caller {
  std::optional<Answer> answer;
  Meetings::Answered told() {
    return [this](const Answer& given) { answer = given; };
  }
};

TEST(Barrier, AnswersWhenAllAreHere) {
  Meetings meetings;
  Caller a, b, c;
  meetings.barrier("job", 3, a.told());
  meetings.barrier("job", 3, b.told());
  EXPECT_FALSE(a.answer || b.answer);
  EXPECT_EQ(meetings.waiting(), 2U);
  meetings.barrier("job", 3, c.told());
  ASSERT_TRUE(a.answer && b.answer && c.answer);
  EXPECT_TRUE(a.answer->met && b.answer->met && c.answer->met);
  EXPECT_EQ(meetings.waiting(), 0U);
}

TEST(Barrier, OneWorkerNeverWaits) {
  Meetings meetings;
  Caller alone;
  meetings.barrier("job", 1, alone.told());
  EXPECT_TRUE(alone.answer && alone.answer->met);
}

TEST(Barrier, JobsDoNotMeet) {
  Meetings meetings;
  Caller a, b;
  meetings.barrier("one", 2, a.told());
  meetings.barrier("two", 2, b.told());
  EXPECT_FALSE(a.answer || b.answer);
}

TEST(Barrier, WhoLeftIsNotCounted) {
  Meetings meetings;
  Caller gone, a, b;
  meetings.leave(meetings.barrier("job", 2, gone.told()));
  meetings.barrier("job", 2, a.told());
  EXPECT_FALSE(a.answer);
  meetings.barrier("job", 2, b.told());
  EXPECT_TRUE(a.answer && b.answer);
  EXPECT_FALSE(gone.answer);
}

TEST(Barrier, AnotherNumberOfWorkersIsRefusedAndTheOthersGoOn) {
  Meetings meetings;
  Caller a, odd, b;
  meetings.barrier("job", 2, a.told());
  meetings.barrier("job", 3, odd.told());
  ASSERT_TRUE(odd.answer);
  EXPECT_FALSE(odd.answer->met);
  EXPECT_THAT(odd.answer->reason, ::testing::HasSubstr("2 workers"));
  meetings.barrier("job", 2, b.told());
  EXPECT_TRUE(a.answer && a.answer->met);
}

TEST(Barrier, ImpossibleNumbersAreRefused) {
  Meetings meetings;
  for (const std::uint32_t workers : {0U, 65536U, 0xFFFFFFFFU}) {
    Caller caller;
    meetings.barrier("job", workers, caller.told());
    ASSERT_TRUE(caller.answer);
    EXPECT_FALSE(caller.answer->met);
  }
  EXPECT_EQ(meetings.waiting(), 0U);
}

TEST(Barrier, AFullHouseRefuses) {
  Meetings meetings(2);
  Caller a, b, c;
  meetings.barrier("x", 5, a.told());
  meetings.barrier("y", 5, b.told());
  meetings.barrier("z", 5, c.told());
  ASSERT_TRUE(c.answer);
  EXPECT_FALSE(c.answer->met);
}

TEST(Broadcast, GivesTheRootsValueToAll) {
  Meetings meetings;
  Caller a, b, c;
  meetings.broadcast("job", 3, 2, 1, 222, a.told());
  meetings.broadcast("job", 3, 1, 1, 111, b.told());
  meetings.broadcast("job", 3, 0, 1, 0, c.told());
  for (const Caller* caller : {&a, &b, &c}) {
    ASSERT_TRUE(caller->answer && caller->answer->met);
    EXPECT_EQ(caller->answer->value, 111U);
  }
}

TEST(Broadcast, ARankThatCallsAgainTakesItsOwnPlace) {
  Meetings meetings;
  Caller first, again, other;
  meetings.broadcast("job", 2, 0, 0, 5, first.told());
  meetings.broadcast("job", 2, 0, 0, 6, again.told());
  EXPECT_FALSE(again.answer);
  ASSERT_TRUE(first.answer) << "else it would wait for ever";
  EXPECT_FALSE(first.answer->met);
  EXPECT_THAT(first.answer->reason, ::testing::HasSubstr("called again"));
  EXPECT_EQ(meetings.waiting(), 1U);
  meetings.broadcast("job", 2, 1, 0, 0, other.told());
  ASSERT_TRUE(other.answer && again.answer);
  EXPECT_EQ(other.answer->value, 6U);
}

TEST(Broadcast, RanksOutsideAreRefused) {
  Meetings meetings;
  Caller rank, root;
  meetings.broadcast("job", 2, 2, 0, 5, rank.told());
  meetings.broadcast("job", 2, 0, 7, 5, root.told());
  EXPECT_TRUE(rank.answer && !rank.answer->met);
  EXPECT_TRUE(root.answer && !root.answer->met);
}

TEST(Meetings, GivingUpTellsAllWhoWait) {
  Meetings meetings;
  Caller a, b;
  meetings.barrier("job", 2, a.told());
  meetings.broadcast("job", 2, 0, 0, 1, b.told());
  meetings.give_up("the switch stops");
  ASSERT_TRUE(a.answer && b.answer);
  EXPECT_EQ(a.answer->reason, "the switch stops");
  EXPECT_EQ(meetings.waiting(), 0U);
}

TEST(Meetings, ManyThreadsMeetManyTimes) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  Meetings meetings;
  std::vector<std::thread> threads;
  std::atomic<int> met{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        std::atomic<bool> done{false};
        meetings.barrier("job", kThreads, [&](const Answer& answer) {
          met += answer.met ? 1 : 0;
          done = true;
          done.notify_one();
        });
        done.wait(false);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(met, kThreads * kRounds);
}

}  // namespace
}  // namespace weft::control
