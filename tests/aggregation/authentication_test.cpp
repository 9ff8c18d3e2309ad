// Forged, replayed, reordered and misdirected extended packets, against a switch and against a worker.
#include <gtest/gtest.h>

#include "tests/aggregation/switch/switch_driver.h"
#include "weft/aggregation/worker/worker.h"

namespace weft::aggregation {
namespace {

class SwitchAuthentication : public testing::Test {
 protected:
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver{spec};

  [[nodiscard]] Bytes packet(int rank, std::uint64_t sequence, std::int32_t value) const {
    return contribution(driver.head(spec, rank, 0, sequence), value);
  }
  [[nodiscard]] std::uint64_t rejected(Rejected cause) const { return driver.counters().rejected_for(cause); }
};

TEST_F(SwitchAuthentication, CountsAReplayedContributionOnce) {
  const Bytes first = packet(0, 0, 1);
  for (int copy = 0; copy < 3; ++copy) EXPECT_TRUE(driver.put(first, worker_address(0)).empty());
  EXPECT_EQ(driver.put(packet(1, 0, 2), worker_address(1))[0].element(0), 3);
  driver.put(packet(0, 1, 10), worker_address(0));
  driver.put(packet(1, 1, 10), worker_address(1));
  driver.put(packet(0, 2, 100), worker_address(0));  // reuses the set of turn 0
  EXPECT_TRUE(driver.put(packet(1, 0, 2), worker_address(1)).empty());
  EXPECT_EQ(rejected(Rejected::kLate), 1U);
  EXPECT_EQ(driver.put(packet(1, 2, 200), worker_address(1))[0].element(0), 300);
}

TEST_F(SwitchAuthentication, RejectsItsOwnResults) {
  driver.put(packet(0, 0, 1), worker_address(0));
  Bytes result = driver.put(packet(1, 0, 2), worker_address(1))[0].bytes;
  EXPECT_TRUE(driver.put(result, worker_address(0)).empty());
  EXPECT_EQ(driver.strays().rejected_for(Rejected::kMalformed), 1U);
  result[0] = std::byte{0x20};  // relabelled as a contribution
  EXPECT_TRUE(driver.put(result, worker_address(0)).empty());
  EXPECT_EQ(rejected(Rejected::kForged), 1U);
}

TEST_F(SwitchAuthentication, RejectsPacketsOfAnotherJob) {
  JobSpec other = job_spec(Mode::kExtended, 2, 2);
  const auto admission = std::get<Admission>(driver.jobs.admit(other, Time{0}));  // same session key, other number
  Bytes bytes = packet(0, 0, 1);
  store_big_endian(bytes.data() + 4, admission.job);
  EXPECT_TRUE(driver.put(bytes, worker_address(0)).empty());
  EXPECT_EQ(driver.jobs.snapshot(Time{0}).jobs.at(1).counters.rejected_for(Rejected::kForged), 1U);
}

TEST_F(SwitchAuthentication, RejectsPacketsOfAnEarlierSwitch) {
  Bytes old = packet(0, 0, 1);
  SwitchDriver restarted(spec, {}, 78);
  EXPECT_EQ(restarted.put(old, worker_address(0)).at(0).packet().head.kind, Kind::kUnknownJob);
  store_big_endian(old.data() + 8, std::uint64_t{78});
  EXPECT_TRUE(restarted.put(old, worker_address(0)).empty());
  EXPECT_EQ(restarted.counters().rejected_for(Rejected::kForged), 1U);
}

TEST_F(SwitchAuthentication, RejectsPacketsOfAnEarlierProcessOfTheWorker) {
  const Bytes old = packet(0, 0, 1);
  EXPECT_EQ(driver.jobs.place_worker(spec.session, 0, worker_address(0), WorkerSalt{9}), "");
  EXPECT_TRUE(driver.put(old, worker_address(0)).empty());
  EXPECT_EQ(rejected(Rejected::kForged), 1U);
}

// Packets with one nonce must be identical: retransmitted results, and notices caused by different workers.
TEST(Nonces, RepeatedPacketsAreIdentical) {
  const JobSpec spec = job_spec(Mode::kExtended, 3);
  SwitchDriver driver(spec);
  const auto put = [&](int rank, std::uint64_t sequence, std::uint32_t operation) {
    Head head = driver.head(spec, rank, 0, sequence);
    head.operation = operation;
    return driver.put(contribution(head, 1), worker_address(rank));
  };
  put(0, 0, 5);
  put(1, 0, 5);
  const Bytes result = put(2, 0, 5).at(0).bytes;
  EXPECT_EQ(put(1, 0, 5).at(0).bytes, result);
  put(0, 1, 5);
  const Bytes notice = put(1, 1, 6).at(0).bytes;
  EXPECT_EQ(put(2, 1, 7).at(0).bytes, notice);
}

class WorkerAuthentication : public testing::Test {
 protected:
  WorkerAuthentication() { worker.begin(*sum, Time{0}, out); }

  // A packet of the switch for the worker's only slot.
  [[nodiscard]] Bytes from_switch(std::uint64_t sequence, Kind kind = Kind::kResult, std::uint64_t epoch = 77) {
    Bytes sent;
    out.for_each_run(1, 1 << 20, [&](auto, auto run) { sent.assign(run[0].begin(), run[0].end()); });
    Head head = decode(sent)->head;
    head.kind = kind;
    head.sequence = sequence;
    head.epoch = epoch;
    const Shape shape = kind == Kind::kResult ? Shape{0, 64} : Shape{};
    Bytes bytes(packet_size(Mode::kExtended, shape));
    (void)write_head(bytes, head, shape);
    PacketMac(kTestKey, {Sender::Role::kSwitch, epoch, head.job, 0, {}}).seal(bytes);
    return bytes;
  }
  void handle(const Bytes& bytes) { worker.handle(bytes, Time{1}, out); }

  std::vector<std::int32_t> data = std::vector<std::int32_t>(192, 1);  // three turns of one slot
  WorkerIdentity identity{{Mode::kExtended, 64, 2, 1}, 0, kTestKey, {}, {1, 2}};
  Worker worker{identity, Admission{77, 1, 1, 0, 0}};
  std::unique_ptr<SumStream> sum = make_sum(identity.layout, std::span<const std::int32_t>(data), std::span(data));
  Outbox out;
};

TEST_F(WorkerAuthentication, RejectsForgedAndReplayedResults) {
  const Bytes first = from_switch(0);
  Bytes forged = first;
  forged[40] ^= std::byte{1};
  handle(forged);
  EXPECT_EQ(worker.counts().rejected, 1U);
  handle(first);
  EXPECT_EQ(worker.counts().rejected, 1U);
  handle(first);
  EXPECT_EQ(worker.counts().rejected, 2U) << "replayed";
  handle(from_switch(2));
  EXPECT_EQ(worker.counts().rejected, 3U) << "a turn that this worker has not reached";
  handle(from_switch((std::uint64_t{1} << 32) + 1));
  EXPECT_EQ(worker.counts().rejected, 4U) << "all 64 bits of the sequence number are compared";
}

TEST_F(WorkerAuthentication, RejectsContributionsAndPacketsOfAnotherEpoch) {
  Bytes own;
  out.for_each_run(1, 1 << 20, [&](auto, auto run) { own.assign(run[0].begin(), run[0].end()); });
  handle(own);
  own[0] = std::byte{0x21};  // relabelled as a result
  handle(own);
  handle(from_switch(0, Kind::kResult, 76));
  EXPECT_EQ(worker.counts().rejected, 3U);
  EXPECT_FALSE(worker.done());
}

TEST_F(WorkerAuthentication, IgnoresReplayedNoticesOfDifferingOperations) {
  const Bytes old = from_switch(0, Kind::kOperationsDiffer);
  handle(from_switch(0));
  handle(old);
  EXPECT_FALSE(worker.operations_differ());
  handle(from_switch(1, Kind::kOperationsDiffer));
  EXPECT_TRUE(worker.operations_differ());
}

}  // namespace
}  // namespace weft::aggregation
