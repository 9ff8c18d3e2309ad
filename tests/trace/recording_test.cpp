// Spans: kept thread by thread, the latest ones, nothing while nobody records.
#include "weft/trace/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace weft::trace {
namespace {

std::vector<std::string> names(const std::vector<Event>& events) {
  std::vector<std::string> result;
  for (const Event& event : events) result.emplace_back(event.name);
  return result;
}

// The events of the thread that calls.
ThreadEvents mine() {
  const std::string mark = "mark" + std::to_string(reinterpret_cast<std::uintptr_t>(&mark));
  name_thread(mark);
  for (const ThreadEvents& thread : recorded()) {
    if (thread.name == mark) return thread;
  }
  return {};
}

TEST(Recording, InnerSpansEndFirst) {
  start_recording();
  {
    const Span outer("outer");
    const Span inner("inner", 42);
  }
  stop_recording();
  const auto events = mine().events;
  ASSERT_THAT(names(events), testing::ElementsAre("inner", "outer"));
  EXPECT_EQ(events[0].detail, 42);
  EXPECT_EQ(events[1].detail, Span::kNoDetail);
  EXPECT_LE(events[1].begin_ns, events[0].begin_ns);
  EXPECT_GE(events[1].begin_ns + events[1].duration_ns, events[0].begin_ns + events[0].duration_ns);
}

TEST(Recording, NothingWhileNobodyRecords) {
  start_recording();
  stop_recording();
  {
    const Span span("silent");
  }
  EXPECT_THAT(mine().events, testing::IsEmpty());
  {
    const Span before("began before");
    start_recording();
  }
  EXPECT_THAT(mine().events, testing::IsEmpty());
  {
    const Span open("ends after");
    stop_recording();
  }
  EXPECT_THAT(mine().events, testing::IsEmpty());
}

TEST(Recording, TheLatestAreKept) {
  start_recording(4);
  for (int i = 0; i < 10; ++i) const Span span("s", i);
  stop_recording();
  const ThreadEvents kept = mine();
  ASSERT_EQ(kept.events.size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(kept.events[i].detail, 6 + i);
  EXPECT_EQ(kept.forgotten, 6);
  start_recording(4);
  EXPECT_EQ(mine().forgotten, 0);
  stop_recording();
}

TEST(Recording, ThreadsThatHaveEnded) {
  start_recording();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      name_thread("worker " + std::to_string(i));
      for (int j = 0; j < 1000; ++j) const Span span("work", i);
    });
  }
  (void)recorded();  // while they write
  for (auto& thread : threads) thread.join();
  stop_recording();
  int found = 0;
  for (const ThreadEvents& thread : recorded()) {
    if (!thread.name.starts_with("worker")) continue;
    ++found;
    EXPECT_EQ(thread.events.size(), 1000U);
    for (const Event& event : thread.events) EXPECT_EQ("worker " + std::to_string(event.detail), thread.name);
  }
  EXPECT_EQ(found, 4);
}

TEST(Recording, NamesMadeAtRunTime) {
  const char* one = intern("layer " + std::to_string(1));
  EXPECT_EQ(one, intern("layer 1"));
  EXPECT_STREQ(one, "layer 1");
}

}  // namespace
}  // namespace weft::trace
