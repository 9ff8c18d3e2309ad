// The slot rule of the switch, and the packets that it must drop.
#include "weft/aggregation/switch/aggregation_switch.h"

#include <gtest/gtest.h>

#include "tests/aggregation/switch/switch_driver.h"

namespace weft::aggregation {
namespace {

class EitherMode : public testing::TestWithParam<Mode> {
 protected:
  JobSpec spec = job_spec(GetParam(), 3);
  SwitchDriver driver{spec};

  std::vector<Sent> send(int rank, std::uint32_t slot, std::uint64_t sequence, std::int32_t value, std::int8_t e = 0) {
    return driver.put(contribution(driver.head(spec, rank, slot, sequence), value, e), worker_address(rank));
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, EitherMode, testing::Values(Mode::kSwitchMl, Mode::kExtended),
                         [](const auto& info) { return info.param == Mode::kSwitchMl ? "SwitchMl" : "Extended"; });

TEST_P(EitherMode, AddsElementsAndTakesTheLargestExponents) {
  EXPECT_TRUE(send(2, 4, 0, 100, -7).empty());
  EXPECT_TRUE(send(0, 4, 0, -1, 3).empty());
  const auto sent = send(1, 4, 0, 20, -128);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].to, spec.addresses);
  EXPECT_EQ(sent[0].element(0), 119);
  EXPECT_EQ(sent[0].element(63), 119);
  EXPECT_EQ(static_cast<std::int8_t>(sent[0].packet().exponents[0]), 3);
  EXPECT_EQ(sent[0].packet().head.slot, 4U);
  EXPECT_TRUE(GetParam() == Mode::kSwitchMl || driver.is_from_switch(sent[0].bytes));
  EXPECT_EQ(driver.counters().sums, 1U);
  EXPECT_EQ(driver.counters().packets_out, 3U);
}

TEST_P(EitherMode, SumsWrap) {
  send(0, 0, 0, std::numeric_limits<std::int32_t>::max());
  send(1, 0, 0, 1);
  EXPECT_EQ(send(2, 0, 0, 0)[0].element(0), std::numeric_limits<std::int32_t>::min());
}

TEST_P(EitherMode, DuplicatesCountOnceAndLostResultsAreSentAgain) {
  send(0, 1, 0, 1);
  EXPECT_TRUE(send(0, 1, 0, 1).empty());
  send(1, 1, 0, 10);
  EXPECT_EQ(send(2, 1, 0, 100)[0].element(5), 111);
  const auto again = send(1, 1, 0, 10);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].to, std::vector{worker_address(1)});
  EXPECT_EQ(again[0].element(5), 111);
  EXPECT_EQ(driver.counters().duplicates, 2U);
  EXPECT_EQ(driver.counters().answered, 1U);
}

// SwitchML's own rule corrupts the sum if a duplicate of turn 0 arrives during turn 2.
TEST_P(EitherMode, LateDuplicatesDoNotChangeTheSum) {
  for (std::uint64_t turn = 0; turn < 2; ++turn) {
    for (int rank = 0; rank < 3; ++rank) send(rank, 0, turn, 1);
  }
  send(0, 0, 2, 5);
  EXPECT_TRUE(send(1, 0, 0, 1000).empty());
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kLate), 1U);
  send(1, 0, 2, 6);
  EXPECT_EQ(send(2, 0, 2, 7)[0].element(0), 18);
}

TEST_P(EitherMode, TheSlowestWorkerStillGetsThePreviousSum) {
  for (int rank = 0; rank < 3; ++rank) send(rank, 0, 0, 1);
  send(0, 0, 1, 5);
  send(1, 0, 1, 5);  // workers 0 and 1 are already in the next turn
  const auto sent = send(2, 0, 0, 1);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].element(0), 3);
  EXPECT_EQ(send(2, 0, 1, 5)[0].element(0), 15);
}

TEST_P(EitherMode, UnknownSourcesSlotsAndSizesAreDroppedAndCounted) {
  const Bytes good = contribution(driver.head(spec, 0, 0, 0), 1);
  EXPECT_TRUE(driver.put(good, {0x0a0000ff, 4000}).empty());
  EXPECT_TRUE(driver.put(good, {worker_address(0).ipv4, 4001}).empty());
  const PacketCounters& where = GetParam() == Mode::kSwitchMl ? driver.strays() : driver.counters();
  EXPECT_EQ(where.rejected_for(Rejected::kUnknownSource), 2U);
  EXPECT_TRUE(send(0, 8, 0, 1).empty());
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kBadSlot), 1U);
  EXPECT_TRUE(driver.put(contribution(driver.head(spec, 0, 0, 0), 1, 0, full_shape(GetParam(), 256)), worker_address(0))
                  .empty());
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kBadShape), 1U);
  EXPECT_TRUE(driver.put(Bytes(266, std::byte{0x77}), worker_address(0)).empty());
  EXPECT_TRUE(driver.put({}, worker_address(0)).empty());
  EXPECT_EQ(driver.strays().rejected_for(Rejected::kMalformed), 2U);
  EXPECT_EQ(driver.jobs.snapshot(Time{0}).jobs[0].slots_busy, 0);
}

TEST(Extended, ForgedPacketsAreDropped) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  SessionKey wrong = kTestKey;
  wrong[0] ^= 0x80;
  const auto shape = full_shape(Mode::kExtended, 64);
  EXPECT_TRUE(driver.put(contribution(driver.head(spec, 0, 0, 0), 1, 0, shape, wrong), worker_address(0)).empty());
  // A worker cannot send in another's name, even with the job's key.
  EXPECT_TRUE(driver.put(contribution(driver.head(spec, 1, 0, 0), 1), worker_address(0)).empty());
  EXPECT_TRUE(driver.put(contribution(driver.head(spec, 9, 0, 0), 1), worker_address(0)).empty());
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kForged), 1U);
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kUnknownSource), 2U);
  // A result replayed as a contribution
  Head head = driver.head(spec, 0, 0, 0);
  head.kind = Kind::kResult;
  EXPECT_TRUE(driver.put(contribution(head, 1), worker_address(0)).empty());
  EXPECT_EQ(driver.strays().rejected_for(Rejected::kMalformed), 1U);
}

// Worker 0 shares memory with the switch, worker 1 does not.
TEST(Extended, SharesElementsOnlyWithWorkersThatOfferMemory) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  Bytes memory(SharedSlots::bytes(spec.slots, spec.packet_elements));
  const SharedSlots slots(memory, spec.packet_elements);
  const auto offer = [&](const SharedSlots& offered) {
    return driver.jobs.place_worker(spec.session, 0, worker_address(0), {}, std::make_shared<SharedSlots>(offered));
  };
  const auto shared_contribution = [&](int rank, std::int32_t value) {
    Head head = driver.head(spec, rank, 3, 1);
    head.shared = true;
    const Shape shape = full_shape(Mode::kExtended, 64);
    const auto elements = slots.elements_of(head, shape.elements);
    for (std::size_t i = 0; i < shape.elements; ++i) store_element(elements.data(), i, value);
    Bytes bytes(packet_size(head, shape));
    (void)write_head(bytes, head, shape);
    PacketMac(kTestKey, {Sender::Role::kWorker, head.epoch, head.job, head.rank, {}}).seal(bytes, elements);
    return bytes;
  };
  EXPECT_EQ(offer({std::span(memory).first(memory.size() - 1), spec.packet_elements}), "");
  EXPECT_FALSE(driver.jobs.shares_memory(spec.session, 0)) << "too small for the job's slots";
  EXPECT_TRUE(driver.put(shared_contribution(0, 5), worker_address(0)).empty());
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kMalformed), 1U);

  EXPECT_EQ(offer(slots), "");
  EXPECT_TRUE(driver.jobs.shares_memory(spec.session, 0));
  EXPECT_TRUE(driver.put(shared_contribution(0, 5), worker_address(0)).empty());
  EXPECT_TRUE(driver.put(shared_contribution(1, 5), worker_address(1)).empty());
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kMalformed), 2U);
  const auto sent = driver.put(contribution(driver.head(spec, 1, 3, 1), 7), worker_address(1));
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].to, std::vector{worker_address(1)});
  EXPECT_EQ(sent[0].element(63), 12);
  EXPECT_EQ(sent[1].to, std::vector{worker_address(0)});
  EXPECT_TRUE(sent[1].packet().head.shared && sent[1].packet().elements.empty());
  const auto result = slots.elements_of(sent[1].packet().head, 64);
  EXPECT_EQ(load_element(result.data(), 63), 12);
  // A worker that lost its result gets it in the same way.
  EXPECT_EQ(driver.put(shared_contribution(0, 5), worker_address(0)).at(0).bytes, sent[1].bytes);
}

TEST(Extended, PacketsOfAnotherEpochGetAShorterNotice) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  Head head = driver.head(spec, 0, 0, 0);
  head.epoch = 76;
  const Bytes old = contribution(head, 1, 0, Shape{2, 0});
  const auto sent = driver.put(old, worker_address(0));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].to, std::vector{worker_address(0)});
  EXPECT_EQ(sent[0].packet().head.kind, Kind::kUnknownJob);
  EXPECT_EQ(sent[0].packet().head.epoch, 77U);
  EXPECT_LT(sent[0].bytes.size(), old.size());
  EXPECT_EQ(driver.strays().rejected_for(Rejected::kUnknownJob), 1U);
}

TEST(Extended, UnauthenticatedPacketsCountAsReceived) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  const Bytes forged = contribution(driver.head(spec, 0, 0, 0), 1, 0, full_shape(Mode::kExtended, 64), {});
  driver.put(forged, worker_address(0));
  driver.put(forged, worker_address(1));
  driver.put(contribution(driver.head(spec, 0, 0, 0), 1), worker_address(0));
  EXPECT_EQ(driver.counters().packets_in, 1U);
  EXPECT_EQ(driver.strays().packets_in, 2U);
  EXPECT_EQ(driver.strays().bytes_in, 2 * forged.size());
}

TEST_P(EitherMode, RejectsPacketsFromPortZero) {
  for (Address& address : spec.addresses) address.port = 0;  // any
  SwitchDriver any_port(spec);
  EXPECT_TRUE(any_port.put(contribution(any_port.head(spec, 0, 0, 0), 1), {worker_address(0).ipv4, 0}).empty());
  Head elsewhere = any_port.head(spec, 0, 0, 0);
  elsewhere.epoch = 1;
  EXPECT_TRUE(any_port.put(contribution(elsewhere, 1), {worker_address(0).ipv4, 0}).empty());
  EXPECT_EQ(any_port.strays().rejected_for(Rejected::kMalformed), 2U);
  EXPECT_EQ(any_port.counters().packets_in, 0U);
}

TEST(Extended, DifferingOperationsAreReportedToAllWorkers) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  EXPECT_TRUE(driver.put(contribution(driver.head(spec, 0, 0, 0), 1), worker_address(0)).empty());
  Head other = driver.head(spec, 1, 0, 0);
  other.operation = 6;
  const auto sent = driver.put(contribution(other, 1), worker_address(1));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].to, spec.addresses);
  EXPECT_EQ(sent[0].packet().head.kind, Kind::kOperationsDiffer);
  EXPECT_TRUE(driver.is_from_switch(sent[0].bytes));
}

TEST(SwitchMl, OperationsAndTsiMayWrap) {
  JobSpec spec = job_spec(Mode::kSwitchMl, 2);
  spec.first_operation = 250;
  SwitchDriver driver(spec);
  std::uint64_t turn = 0xfffffffdU;
  for (int operation = 250; operation < 250 + 600; ++operation, ++turn) {
    // Slot 1 is used rarely, so its last turn is many operations old.
    const std::uint32_t slot = operation % 150 == 0 ? 1 : 0;
    Head head = driver.head(spec, 0, slot, turn);
    head.operation = static_cast<std::uint32_t>(operation) & 0xffU;
    EXPECT_TRUE(driver.put(contribution(head, operation), worker_address(0)).empty());
    const auto sent = driver.put(contribution(head, 1), worker_address(1));
    ASSERT_EQ(sent.size(), 1U) << operation;
    EXPECT_EQ(sent[0].element(0), operation + 1);
  }
  Head old = driver.head(spec, 0, 0, turn);
  old.operation = (250 + 600 + 20) & 0xff;  // 236 operations old
  EXPECT_TRUE(driver.put(contribution(old, 1), worker_address(0)).empty());
  EXPECT_EQ(driver.counters().rejected_for(Rejected::kWrongOperation), 1U);
}

// The tsi wraps within an operation whose last sum a worker lost, while its peer is in the next operation.
TEST(SwitchMl, ASlowWorkerGetsASumAfterTheWrap) {
  const JobSpec spec = job_spec(Mode::kSwitchMl, 2);
  SwitchDriver driver(spec);
  const auto send = [&](int rank, std::uint64_t turn, std::uint32_t operation) {
    Head head = driver.head(spec, rank, 0, turn);
    head.operation = operation;
    return driver.put(contribution(head, 1), worker_address(rank));
  };
  for (std::uint64_t turn = 0xffffffffU; turn <= 0x100000000U; ++turn) {
    send(0, turn, 7);
    ASSERT_EQ(send(1, turn, 7).size(), 1U);
  }
  send(0, 0x100000001U, 8);
  ASSERT_EQ(send(1, 0x100000000U, 7).size(), 1U) << "answered again";
  EXPECT_EQ(send(1, 0x100000001U, 8).size(), 1U);
}

TEST(SwitchMl, AcceptsAnyPortAndAnswersToTheLastSendersPort) {
  JobSpec spec = job_spec(Mode::kSwitchMl, 2);
  for (Address& address : spec.addresses) address.port = 0;
  SwitchDriver driver(spec);
  driver.put(contribution(driver.head(spec, 0, 0, 0), 1), {worker_address(0).ipv4, 4003});
  const auto sent = driver.put(contribution(driver.head(spec, 1, 0, 0), 2), {worker_address(1).ipv4, 4002});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].to, (std::vector<Address>{{worker_address(0).ipv4, 4002}, {worker_address(1).ipv4, 4002}}));
}

TEST(Jobs, AFloodOfOneJobDoesNotAffectAnother) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  JobSpec flooding = job_spec(Mode::kExtended, 1, 2);
  flooding.addresses = {{0x0b000001, 1}};
  const auto flood = std::get<Admission>(driver.jobs.admit(flooding, Time{0}));
  driver.put(contribution(driver.head(spec, 0, 0, 0), 40), worker_address(0));
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    Head head = driver.head(flooding, 0, static_cast<std::uint32_t>(i % 9), i);
    head.job = i % 3 == 0 ? driver.admission.job : flood.job;  // its own number or the other job's
    driver.put(contribution(head, 999), flooding.addresses[0]);
  }
  EXPECT_EQ(driver.put(contribution(driver.head(spec, 1, 0, 0), 2), worker_address(1))[0].element(0), 42);
}

}  // namespace
}  // namespace weft::aggregation
