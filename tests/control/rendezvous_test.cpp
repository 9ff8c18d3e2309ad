#include "weft/control/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

namespace weft::control {
namespace {

using Answer = Rendezvous::Answer;

// Stores the answer to a caller.
struct Caller {
  std::optional<Answer> answer;
  Rendezvous::OnAnswer told() {
    return [this](const Answer& given) { answer = given; };
  }
};

TEST(Barrier, AnswersWhenAllHaveArrived) {
  Rendezvous rendezvous;
  Caller a, b, c;
  rendezvous.barrier("job", 3, a.told());
  rendezvous.barrier("job", 3, b.told());
  EXPECT_FALSE(a.answer || b.answer);
  EXPECT_EQ(rendezvous.waiting(), 2U);
  rendezvous.barrier("job", 3, c.told());
  ASSERT_TRUE(a.answer && b.answer && c.answer);
  EXPECT_TRUE(a.answer->met && b.answer->met && c.answer->met);
  EXPECT_EQ(rendezvous.waiting(), 0U);
}

TEST(Barrier, OneWorkerNeverWaits) {
  Rendezvous rendezvous;
  Caller alone;
  rendezvous.barrier("job", 1, alone.told());
  EXPECT_TRUE(alone.answer && alone.answer->met);
}

TEST(Barrier, SeparatesJobs) {
  Rendezvous rendezvous;
  Caller a, b;
  rendezvous.barrier("one", 2, a.told());
  rendezvous.barrier("two", 2, b.told());
  EXPECT_FALSE(a.answer || b.answer);
}

TEST(Barrier, DoesNotCountCallersThatLeft) {
  Rendezvous rendezvous;
  Caller gone, a, b;
  rendezvous.leave(rendezvous.barrier("job", 2, gone.told()));
  rendezvous.barrier("job", 2, a.told());
  EXPECT_FALSE(a.answer);
  rendezvous.barrier("job", 2, b.told());
  EXPECT_TRUE(a.answer && b.answer);
  EXPECT_FALSE(gone.answer);
}

TEST(Barrier, RefusesAnotherNumberOfWorkers) {
  Rendezvous rendezvous;
  Caller a, odd, b;
  rendezvous.barrier("job", 2, a.told());
  rendezvous.barrier("job", 3, odd.told());
  ASSERT_TRUE(odd.answer);
  EXPECT_FALSE(odd.answer->met);
  EXPECT_THAT(odd.answer->reason, ::testing::HasSubstr("2 workers"));
  rendezvous.barrier("job", 2, b.told());
  EXPECT_TRUE(a.answer && a.answer->met);
}

TEST(Barrier, RefusesInvalidNumbers) {
  Rendezvous rendezvous;
  for (const std::uint32_t workers : {0U, Rendezvous::kMostWorkers + 1, 65536U, 0xFFFFFFFFU}) {
    Caller caller;
    rendezvous.barrier("job", workers, caller.told());
    ASSERT_TRUE(caller.answer);
    EXPECT_FALSE(caller.answer->met);
  }
  EXPECT_EQ(rendezvous.waiting(), 0U);
}

// Five other jobs wait with the maximum number of callers.
TEST(Barrier, AJobCannotKeepAnotherOut) {
  Rendezvous rendezvous;
  Caller waiting;
  for (const char* job : {"x", "y", "z", "v", "w"}) {
    for (std::uint32_t i = 1; i < Rendezvous::kMostWorkers; ++i) {
      rendezvous.barrier(job, Rendezvous::kMostWorkers, waiting.told());
    }
  }
  EXPECT_FALSE(waiting.answer);
  Caller a, b, c, d;
  rendezvous.barrier("job", 2, a.told());
  rendezvous.barrier("job", 2, b.told());
  EXPECT_TRUE(a.answer && a.answer->met && b.answer && b.answer->met);
  rendezvous.broadcast("job", 2, 0, 0, 7, c.told());
  rendezvous.broadcast("job", 2, 1, 0, 0, d.told());
  EXPECT_TRUE(c.answer && c.answer->met && d.answer && d.answer->value == 7);
}

TEST(Broadcast, SendsTheRootsValueToAll) {
  Rendezvous rendezvous;
  Caller a, b, c;
  rendezvous.broadcast("job", 3, 2, 1, 222, a.told());
  rendezvous.broadcast("job", 3, 1, 1, 111, b.told());
  rendezvous.broadcast("job", 3, 0, 1, 0, c.told());
  for (const Caller* caller : {&a, &b, &c}) {
    ASSERT_TRUE(caller->answer && caller->answer->met);
    EXPECT_EQ(caller->answer->value, 111U);
  }
}

TEST(Broadcast, ASecondCallOfARankReplacesTheFirst) {
  Rendezvous rendezvous;
  Caller first, again, other;
  rendezvous.broadcast("job", 2, 0, 0, 5, first.told());
  rendezvous.broadcast("job", 2, 0, 0, 6, again.told());
  EXPECT_FALSE(again.answer);
  ASSERT_TRUE(first.answer) << "otherwise it would hang";
  EXPECT_FALSE(first.answer->met);
  EXPECT_THAT(first.answer->reason, ::testing::HasSubstr("replaced"));
  EXPECT_EQ(rendezvous.waiting(), 1U);
  rendezvous.broadcast("job", 2, 1, 0, 0, other.told());
  ASSERT_TRUE(other.answer && again.answer);
  EXPECT_EQ(other.answer->value, 6U);
}

TEST(Broadcast, RefusesInvalidRanks) {
  Rendezvous rendezvous;
  Caller rank, root;
  rendezvous.broadcast("job", 2, 2, 0, 5, rank.told());
  rendezvous.broadcast("job", 2, 0, 7, 5, root.told());
  EXPECT_TRUE(rank.answer && !rank.answer->met);
  EXPECT_TRUE(root.answer && !root.answer->met);
}

TEST(Rendezvous, GivingUpFailsAllCallers) {
  Rendezvous rendezvous;
  Caller a, b;
  rendezvous.barrier("job", 2, a.told());
  rendezvous.broadcast("job", 2, 0, 0, 1, b.told());
  rendezvous.give_up("the switch stops");
  ASSERT_TRUE(a.answer && b.answer);
  EXPECT_EQ(a.answer->reason, "the switch stops");
  EXPECT_EQ(rendezvous.waiting(), 0U);
}

TEST(Rendezvous, ServesManyThreadsManyTimes) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  Rendezvous rendezvous;
  std::vector<std::thread> threads;
  std::atomic<int> met{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        std::atomic<bool> done{false};
        rendezvous.barrier("job", kThreads, [&](const Answer& answer) {
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
