// Recording of spans: per thread, with a bounded number of events, and only while recording is on.
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

// The events of the calling thread.
ThreadEvents mine() {
  const std::string mark = "mark" + std::to_string(reinterpret_cast<std::uintptr_t>(&mark));
  name_thread(mark);
  for (const ThreadEvents& thread : recorded()) {
    if (thread.name == mark) return thread;
  }
  return {};
}

TEST(Recording, RecordsSpansInTheOrderOfTheirEnds) {
  {
    const Span nothing("not recorded");
  }
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

TEST(Recording, RecordsNothingWhileOff) {
  start_recording();
  stop_recording();
  {
    const Span span("silent");
  }
  EXPECT_THAT(mine().events, testing::IsEmpty());
  {
    const Span before("started before");
    start_recording();
  }
  EXPECT_THAT(mine().events, testing::IsEmpty());
  {
    const Span open("ends after");
    stop_recording();
  }
  EXPECT_THAT(mine().events, testing::IsEmpty());
}

TEST(Recording, KeepsTheLatestEvents) {
  start_recording(4);
  for (int i = 0; i < 10; ++i) const Span span("s", i);
  stop_recording();
  const ThreadEvents kept = mine();
  ASSERT_EQ(kept.events.size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(kept.events[i].detail, 6 + i);
  EXPECT_EQ(kept.dropped, 6);
  start_recording(4);
  EXPECT_EQ(mine().dropped, 0);
  stop_recording();
}

TEST(Recording, IncludesThreadsThatHaveEnded) {
  start_recording();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      name_thread("worker " + std::to_string(i));
      for (int j = 0; j < 1000; ++j) const Span span("work", i);
    });
  }
  (void)recorded();  // concurrently with the writers
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

TEST(Recording, RestartedThreadContinuesItsRow) {
  start_recording();
  for (int i = 0; i < 3; ++i) {
    std::thread([i] {
      name_thread("again");
      const Span span("work", i);
    }).join();
  }
  stop_recording();
  std::vector<std::int64_t> details;
  int rows = 0;
  for (const ThreadEvents& thread : recorded()) {
    if (thread.name != "again") continue;
    ++rows;
    for (const Event& event : thread.events) details.push_back(event.detail);
  }
  EXPECT_EQ(rows, 1);
  EXPECT_THAT(details, testing::ElementsAre(0, 1, 2));
}

TEST(Recording, ConcurrentThreadsOfOneNameAreSeparate) {
  start_recording();
  std::thread one([] {
    name_thread("both");
    const Span span("outer");
    std::thread([] {
      name_thread("both");
      const Span inner("inner");
    }).join();
  });
  one.join();
  stop_recording();
  int rows = 0;
  for (const ThreadEvents& thread : recorded()) rows += thread.name == "both" ? 1 : 0;
  EXPECT_EQ(rows, 2);
}

TEST(Recording, InternsNames) {
  const char* one = intern("layer " + std::to_string(1));
  EXPECT_EQ(one, intern("layer 1"));
  EXPECT_STREQ(one, "layer 1");
}

}  // namespace
}  // namespace weft::trace
