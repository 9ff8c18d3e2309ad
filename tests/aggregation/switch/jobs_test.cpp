// Admission of jobs: grants, refusals with reasons, and snapshots.
#include "weft/aggregation/switch/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tests/aggregation/switch/switch_driver.h"

namespace weft::aggregation {
namespace {

using testing::HasSubstr;

Refusal refused(Jobs& jobs, const JobSpec& spec) {
  const auto answer = jobs.admit(spec, Time{0});
  const auto* refusal = std::get_if<Refusal>(&answer);
  return refusal != nullptr ? *refusal : Refusal{RefusalReason::kBadWorkers, "admitted"};
}

TEST(Jobs, AdmitsAJob) {
  Jobs jobs({.slots = 100, .slots_per_job = 60, .port = 1234}, 9);
  JobSpec spec = job_spec(Mode::kExtended, 40);
  spec.slots = 0;
  const auto first = std::get<Admission>(jobs.admit(spec, Time{5}));
  EXPECT_EQ(first.epoch, 9U);
  EXPECT_EQ(first.slots, 60);
  EXPECT_EQ(first.port, 1234);
  spec.session = 2;
  const auto second = std::get<Admission>(jobs.admit(spec, Time{5}));
  EXPECT_EQ(second.slots, 40) << "the remaining slots";
  EXPECT_NE(first.job, second.job);
  EXPECT_EQ(jobs.admission(2), second);
  EXPECT_EQ(jobs.admission(3), std::nullopt);
}

TEST(Jobs, RefusesWithAReason) {
  Jobs jobs({.jobs = 2, .slots = 20, .slots_per_job = 10}, 1);
  JobSpec spec = job_spec(Mode::kSwitchMl, 33);
  EXPECT_THAT(refused(jobs, spec).text, HasSubstr("33 workers"));
  EXPECT_THAT(refused(jobs, spec).text, HasSubstr("extended mode supports more"));
  spec = job_spec(Mode::kSwitchMl, 0);
  EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kBadWorkers);
  spec = job_spec(Mode::kSwitchMl, 2);
  for (const int elements : {-64, 0, 63, 128, 320}) {
    spec.packet_elements = elements;
    EXPECT_THAT(refused(jobs, spec).text, HasSubstr("64 or 256")) << elements;
  }
  spec = job_spec(Mode::kExtended, 2);
  for (const int elements : {-64, 0, 63, 100, 20'000}) {
    spec.packet_elements = elements;
    EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kBadPacketElements) << elements;
  }
  spec = job_spec(Mode::kExtended, 2);
  spec.slots = -1;
  EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kBadSlots);
  spec.slots = 10;
  EXPECT_TRUE(std::holds_alternative<Admission>(jobs.admit(spec, Time{0})));
  EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kSessionTaken);
  JobSpec other = job_spec(Mode::kSwitchMl, 2, 2);
  EXPECT_TRUE(std::holds_alternative<Admission>(jobs.admit(other, Time{0})));
  other.session = 3;
  EXPECT_EQ(refused(jobs, other).reason, RefusalReason::kTooManyJobs);
  EXPECT_TRUE(jobs.end(1));
  EXPECT_FALSE(jobs.end(1));
  EXPECT_EQ(refused(jobs, other).reason, RefusalReason::kAddressTaken);
  other.addresses[0] = other.addresses[1] = {0x0b000001, 7};
  EXPECT_EQ(refused(jobs, other).reason, RefusalReason::kAddressTaken) << "two workers at one address";
  spec.session = 4;
  spec.slots = 10;
  EXPECT_TRUE(std::holds_alternative<Admission>(jobs.admit(spec, Time{0})));
  EXPECT_EQ(jobs.snapshot(Time{0}).jobs_ended, 1U);
  EXPECT_GT(jobs.snapshot(Time{0}).jobs_refused, 10U);
}

TEST(Jobs, RefusesWhenNoSlotsAreLeft) {
  Jobs jobs({.slots = 10, .slots_per_job = 8}, 1);
  JobSpec spec = job_spec(Mode::kExtended, 2);
  spec.slots = 8;
  EXPECT_TRUE(std::holds_alternative<Admission>(jobs.admit(spec, Time{0})));
  spec.session = 2;
  EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kNoSlotsLeft);
  spec.slots = 2;
  EXPECT_TRUE(std::holds_alternative<Admission>(jobs.admit(spec, Time{0})));
  spec.session = 3;
  spec.slots = 0;
  EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kNoSlotsLeft);
}

TEST(Jobs, ReducesRequestsAboveTheSlotLimit) {
  Jobs jobs({.slots = 100, .slots_per_job = 60}, 1);
  JobSpec spec = job_spec(Mode::kExtended, 2);
  spec.slots = 256;
  EXPECT_EQ(std::get<Admission>(jobs.admit(spec, Time{0})).slots, 60);
}

// Slots of large packets need more memory than the slot limit implies.
TEST(Jobs, LimitsTheMemoryOfSlots) {
  JobSpec spec = job_spec(Mode::kExtended, 2);
  spec.packet_elements = 16'000;
  spec.slots = 10;
  Jobs generous({}, 1);
  ASSERT_TRUE(std::holds_alternative<Admission>(generous.admit(spec, Time{0})));
  const std::size_t needed = generous.snapshot(Time{0}).bytes_assigned;
  EXPECT_GE(needed, 10U * 2 * 16'000 * sizeof(std::int32_t)) << "two sets";
  EXPECT_EQ(generous.snapshot(Time{0}).jobs[0].bytes, needed);

  Jobs jobs({.bytes = needed + needed / 2}, 1);
  ASSERT_TRUE(std::holds_alternative<Admission>(jobs.admit(spec, Time{0})));
  spec.session = 2;
  EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kNoMemoryLeft);
  EXPECT_THAT(refused(jobs, spec).text, HasSubstr("--memory"));
  spec.slots = 0;
  EXPECT_EQ(std::get<Admission>(jobs.admit(spec, Time{0})).slots, 5) << "the remaining slots";
  spec.session = 3;
  EXPECT_EQ(refused(jobs, spec).reason, RefusalReason::kNoMemoryLeft);
  EXPECT_TRUE(jobs.end(1) && jobs.end(2));
  EXPECT_EQ(jobs.snapshot(Time{0}).bytes_assigned, 0U);
  EXPECT_EQ(std::get<Admission>(jobs.admit(spec, Time{0})).slots, 15);
}

// Waiting workers check their session twice a second, and each change makes the loop set the filters again.
TEST(Jobs, PlacingAWorkerAgainIsNotAChange) {
  for (const Mode mode : {Mode::kSwitchMl, Mode::kExtended}) {
    SwitchDriver driver(job_spec(mode, 2));
    EXPECT_EQ(driver.jobs.place_worker(1, 0, worker_address(7)), "");
    const std::uint64_t changes = driver.jobs.changes();
    EXPECT_EQ(driver.jobs.place_worker(1, 0, worker_address(7)), "");
    EXPECT_EQ(driver.jobs.changes(), changes);
    EXPECT_EQ(driver.jobs.place_worker(1, 0, worker_address(8)), "");
    EXPECT_NE(driver.jobs.changes(), changes);
  }
}

TEST(Jobs, WorkersCanBePlacedLater) {
  for (const Mode mode : {Mode::kSwitchMl, Mode::kExtended}) {
    JobSpec spec = job_spec(mode, 2);
    spec.addresses.clear();
    SwitchDriver driver(spec);
    const Bytes bytes = contribution(driver.head(spec, 0, 0, 0), 1);
    driver.put(bytes, worker_address(0));
    EXPECT_EQ(driver.counters().packets_in, 0U) << "the worker has no address yet";
    EXPECT_EQ(driver.jobs.place_worker(1, 0, worker_address(5)), "");
    EXPECT_EQ(driver.jobs.place_worker(1, 0, worker_address(0)), "") << "the last call counts";
    EXPECT_EQ(driver.jobs.place_worker(1, 1, worker_address(1)), "");
    driver.put(bytes, worker_address(5));
    EXPECT_EQ(driver.counters().packets_in, 0U) << "the worker has moved";
    driver.put(bytes, worker_address(0));
    EXPECT_EQ(driver.put(contribution(driver.head(spec, 1, 0, 0), 1), worker_address(1)).size(), 1U);
    EXPECT_EQ(driver.jobs.snapshot(Time{0}).jobs[0].workers_placed, 2);
    EXPECT_THAT(driver.jobs.place_worker(1, 2, worker_address(2)),
                HasSubstr("rank 2 is out of range for a job of 2 workers"));
    EXPECT_THAT(driver.jobs.place_worker(9, 0, worker_address(2)), HasSubstr("no job has session 9"));
    if (mode == Mode::kSwitchMl) {
      EXPECT_THAT(driver.jobs.place_worker(1, 1, worker_address(0)), HasSubstr("already belongs to another worker"));
    }
  }
}

TEST(Jobs, IdleJobsCanBeReclaimed) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  (void)driver.jobs.admit(job_spec(Mode::kExtended, 2, 2), Time{0});
  driver.now = 999;
  driver.put(contribution(driver.head(spec, 0, 0, 0), 1), worker_address(0));
  EXPECT_EQ(driver.jobs.snapshot(Time{1500}).jobs[0].idle, Duration{500});
  EXPECT_EQ(driver.jobs.snapshot(Time{1500}).jobs[0].slots_busy, 1);
  EXPECT_EQ(driver.jobs.end_idle(Duration{600}, Time{1500}), std::vector<std::uint64_t>{2});
  EXPECT_EQ(driver.jobs.snapshot(Time{1500}).jobs.size(), 1U);
  EXPECT_EQ(driver.jobs.snapshot(Time{1500}).slots_assigned, 8);
}

TEST(Jobs, CanBeQueriedWhilePacketsArrive) {
  const JobSpec spec = job_spec(Mode::kExtended, 1);
  SwitchDriver driver(spec);
  std::atomic<bool> stop = false;
  std::thread control([&] {
    for (std::uint64_t session = 2; !stop; ++session) {
      (void)driver.jobs.admit(job_spec(Mode::kExtended, 2, session), Time{0});
      (void)driver.jobs.snapshot(Time{0});
      driver.jobs.end(session);
    }
  });
  for (std::uint64_t turn = 0; turn < 2000; ++turn) {
    const auto sent = driver.put(contribution(driver.head(spec, 0, 0, turn), 3), worker_address(0));
    EXPECT_EQ(sent.size(), 1U);
  }
  stop = true;
  control.join();
}

// Zeroing a hundred megabytes takes a while and must not delay the packets of other jobs.
TEST(Jobs, AdmittingALargeJobDoesNotDelayOthers) {
  Jobs jobs({}, 1);
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::thread other([&] {
    for (; !stop; ++calls) {
      (void)jobs.changes();
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // gives other threads the lock
    }
  });
  JobSpec large = job_spec(Mode::kExtended, 2);
  large.packet_elements = 16'000;
  large.slots = 1024;
  int went_on = 0;
  for (int i = 0; i < 10 && went_on < 20; ++i) {  // any thread may be descheduled for a while
    const int before = calls;
    ASSERT_TRUE(std::holds_alternative<Admission>(jobs.admit(large, Time{0})));
    went_on = calls - before;
    jobs.end(large.session);
  }
  EXPECT_GE(went_on, 20);
  stop = true;
  other.join();
}

TEST(Jobs, CallsBackOnEveryChange) {
  Jobs jobs({}, 1);
  int told = 0;
  jobs.on_change([&] { ++told; });
  JobSpec spec = job_spec(Mode::kExtended, 2);
  ASSERT_TRUE(std::holds_alternative<Admission>(jobs.admit(spec, Time{0})));
  EXPECT_EQ(told, 1);
  (void)jobs.admit(spec, Time{0});
  EXPECT_EQ(told, 1) << "refused";
  EXPECT_EQ(jobs.place_worker(1, 0, worker_address(5)), "");
  EXPECT_EQ(told, 2);
  EXPECT_TRUE(jobs.end_idle(Duration{0}, Time{5}).size() == 1);
  EXPECT_EQ(told, 3);
  jobs.end(1);
  EXPECT_EQ(told, 3) << "already ended";
  jobs.on_change({});
  ASSERT_TRUE(std::holds_alternative<Admission>(jobs.admit(spec, Time{0})));
  EXPECT_EQ(told, 3);
}

TEST(Epoch, DiffersBetweenStarts) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) seen.insert(random_epoch());
  EXPECT_EQ(seen.size(), 100U);
  EXPECT_FALSE(seen.contains(0));
}

TEST(Address, ReadsWhatItWrites) {
  const Address address{0x0a0102ff, 48864};
  EXPECT_EQ(address.describe(), "10.1.2.255:48864");
  EXPECT_EQ(Address::parse("10.1.2.255:48864"), address);
  EXPECT_EQ(Address::parse("10.1.2.255"), (Address{0x0a0102ff, 0}));
  for (const char* bad : {"", "10.1.2", "10.1.2.256", "host:1", "1.2.3.4:", "1.2.3.4:70000", "1.2.3.4:1x", "::1"}) {
    EXPECT_EQ(Address::parse(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace weft::aggregation
