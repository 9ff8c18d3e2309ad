// Allocation and eviction of sessions when resources are scarce.
#include "weft/control/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace weft::control {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kIdleAtOnce = aggregation::Duration(1);
constexpr auto kNeverIdle = aggregation::Duration(1h);

SessionRequest request(std::uint64_t session, int slots = 4, const JobKey* key = nullptr) {
  SessionRequest request;
  request.job = "a";
  request.session = session;
  request.workers = 2;
  request.address = {0x7F000001, static_cast<std::uint16_t>(4000 + session)};
  request.packet_elements = 256;
  request.mode = aggregation::Mode::kExtended;
  request.slots = slots;
  request.key = key;
  return request;
}

aggregation::SwitchLimits limits(int sessions, int slots) {
  aggregation::SwitchLimits limits;
  limits.jobs = sessions;
  limits.slots = slots;
  return limits;
}

std::size_t evicted(const std::variant<Placed, Refused>& answer) {
  EXPECT_TRUE(std::holds_alternative<Placed>(answer));
  return std::holds_alternative<Placed>(answer) ? std::get<Placed>(answer).evicted : 0;
}

TEST(Sessions, EvictsTheLongestIdleSession) {
  for (const auto& few : {limits(2, 100), limits(100, 8)}) {  // limited sessions; limited slots
    aggregation::Jobs jobs(few, 42);
    Sessions sessions(jobs, kIdleAtOnce);
    EXPECT_EQ(evicted(sessions.join(request(1))), 0U);
    std::this_thread::sleep_for(2ms);
    EXPECT_EQ(evicted(sessions.join(request(2))), 0U);
    std::this_thread::sleep_for(2ms);
    EXPECT_EQ(evicted(sessions.join(request(3))), 1U);
    EXPECT_FALSE(jobs.admission(1).has_value());
    EXPECT_TRUE(jobs.admission(2).has_value());
    std::this_thread::sleep_for(2ms);
    EXPECT_EQ(evicted(sessions.join(request(1))), 1U);  // the evicted session rejoins
    EXPECT_FALSE(jobs.admission(2).has_value());
  }
}

TEST(Sessions, DoesNotEvictLiveSessions) {
  aggregation::Jobs jobs(limits(2, 100), 42);
  Sessions sessions(jobs, kNeverIdle);
  EXPECT_EQ(evicted(sessions.join(request(1))) + evicted(sessions.join(request(2))), 0U);
  const auto third = sessions.join(request(3));
  ASSERT_TRUE(std::holds_alternative<Refused>(third));
  EXPECT_TRUE(std::get<Refused>(third).no_room);
  auto impossible = request(4);
  impossible.rank = 5;
  const auto wrong = sessions.join(impossible);
  ASSERT_TRUE(std::holds_alternative<Refused>(wrong));
  EXPECT_FALSE(std::get<Refused>(wrong).no_room);
}

TEST(Sessions, DoesNotEvictIfThatWouldNotSuffice) {
  aggregation::Jobs jobs(limits(10, 8), 42);
  Sessions sessions(jobs, kIdleAtOnce);
  EXPECT_EQ(evicted(sessions.join(request(1))), 0U);
  std::this_thread::sleep_for(2ms);
  EXPECT_TRUE(std::holds_alternative<Refused>(sessions.join(request(2, 9))));  // more slots than exist
  auto odd = request(3, 8);
  odd.packet_elements = 65;
  EXPECT_TRUE(std::holds_alternative<Refused>(sessions.join(odd)));
  EXPECT_TRUE(jobs.admission(1).has_value());
}

TEST(Sessions, EvictsWithinAJobsQuota) {
  const JobKey key{"secret", 6, 0};
  aggregation::Jobs jobs(limits(10, 100), 42);
  Sessions sessions(jobs, kIdleAtOnce);
  EXPECT_EQ(evicted(sessions.join(request(1, 6, &key))), 0U);
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(evicted(sessions.join(request(2, 6, &key))), 1U);
  aggregation::Jobs others(limits(10, 100), 42);
  Sessions full(others, kNeverIdle);
  EXPECT_EQ(evicted(full.join(request(1, 6, &key))), 0U);
  const auto refused = full.join(request(2, 6, &key));
  ASSERT_TRUE(std::holds_alternative<Refused>(refused));
  EXPECT_TRUE(std::get<Refused>(refused).no_room);
  EXPECT_THAT(std::get<Refused>(refused).reason, HasSubstr("uses all of its 6 slots"));
}

// A job with many small sessions could take all sessions within its slot quota.
TEST(Sessions, LimitsTheSessionsOfAJob) {
  const JobKey key{"secret", 64, 3, 0};
  aggregation::Jobs jobs(limits(4, 100), 42);
  Sessions sessions(jobs, kNeverIdle);
  for (std::uint64_t session = 1; session <= 3; ++session) {
    EXPECT_EQ(evicted(sessions.join(request(session, 1, &key))), 0U);
  }
  const auto refused = sessions.join(request(4, 1, &key));
  ASSERT_TRUE(std::holds_alternative<Refused>(refused));
  EXPECT_TRUE(std::get<Refused>(refused).no_room);
  EXPECT_THAT(std::get<Refused>(refused).reason, HasSubstr("uses all of its 3 sessions"));
  const JobKey other{"another", 64, 3, 0};
  auto theirs = request(5, 1, &other);
  theirs.job = "b";
  EXPECT_EQ(evicted(sessions.join(theirs)), 0U);
}

TEST(Sessions, EvictsForMemory) {
  auto few = limits(10, 1000);
  few.bytes = 20'000;  // two slots of 256 elements for each of four sessions
  aggregation::Jobs jobs(few, 42);
  Sessions sessions(jobs, kIdleAtOnce);
  EXPECT_EQ(evicted(sessions.join(request(1, 8))), 0U);
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(evicted(sessions.join(request(2, 8))), 1U);
  EXPECT_FALSE(jobs.admission(1).has_value());
}

// Number of sessions that are admitted out of `count`.
int admitted(Sessions& sessions, std::uint64_t first, int count, const std::string& job, std::uint32_t host, int slots,
             int elements = 256) {
  int placed = 0;
  for (std::uint64_t session = first; session < first + static_cast<std::uint64_t>(count); ++session) {
    auto wish = request(session, slots);
    wish.job = job;
    wish.host = host;
    wish.packet_elements = elements;
    placed += std::holds_alternative<Placed>(sessions.join(wish)) ? 1 : 0;
  }
  return placed;
}

// Sessions, slots and memory, by job name on this machine and by host elsewhere.
TEST(Sessions, WithoutAKeyNoClientCanOccupyTheSwitch) {
  for (const std::uint32_t host : {0U, 0x0A000001U}) {
    const std::uint32_t other = host == 0 ? 0 : host + 1;
    {
      aggregation::Jobs jobs({}, 42);
      Sessions sessions(jobs, kNeverIdle);
      EXPECT_EQ(admitted(sessions, 1, 64, "greedy", host, 1), 32);
      EXPECT_EQ(admitted(sessions, 100, 4, "modest", other, 256), 4);
    }
    {
      aggregation::Jobs jobs({}, 42);
      Sessions sessions(jobs, kNeverIdle);
      EXPECT_EQ(admitted(sessions, 1, 64, "greedy", host, 2048), 4);
      EXPECT_EQ(admitted(sessions, 100, 4, "modest", other, 256), 4);
    }
    {
      aggregation::Jobs jobs({}, 42);
      Sessions sessions(jobs, kNeverIdle);
      EXPECT_LE(admitted(sessions, 1, 64, "greedy", host, 1024, 15'872), 5);
      EXPECT_EQ(admitted(sessions, 100, 4, "modest", other, 512, 15'872), 4);
    }
  }
  aggregation::Jobs jobs({}, 42);
  Sessions sessions(jobs, kNeverIdle);
  EXPECT_EQ(admitted(sessions, 1, 64, "one", 0x0A000001, 1) + admitted(sessions, 65, 64, "two", 0x0A000001, 1), 32);
}

}  // namespace
}  // namespace weft::control
