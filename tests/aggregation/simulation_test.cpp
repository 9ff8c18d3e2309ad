// Sums under loss, duplication, reordering, delay and restarts: no element may be wrong and no run may hang.
// WEFT_AGGREGATION_ELEMENTS sets the total number of elements of the random runs.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/aggregation/simulated_sums.h"

namespace weft::aggregation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

SimulationOptions random_options(std::mt19937_64& random, Mode mode) {
  SimulationOptions options;
  options.mode = mode;
  options.workers = 2 + static_cast<int>(random() % (mode == Mode::kSwitchMl ? 31 : 32));
  options.packet_elements = random() % 2 == 0 ? 64 : 256;
  options.window = 1 + static_cast<int>(random() % 32);
  options.faults.loss = static_cast<double>(random() % 21) / 100;
  options.faults.duplication = static_cast<double>(random() % 20) / 100;
  options.faults.late = 0.3;
  options.faults.jitter = microseconds(1 + random() % 2000);
  options.seed = random();
  options.first_operation = static_cast<std::uint8_t>(random());
  return options;
}

std::int64_t elements_wanted() {
  const char* text = std::getenv("WEFT_AGGREGATION_ELEMENTS");
  return text != nullptr ? std::atoll(text) : 600'000;
}

// Sums of random lengths with random faults, until the wanted number of elements is summed.
void expect_no_wrong_element(std::mt19937_64& random, Mode mode, std::int64_t elements, bool shared) {
  std::int64_t summed = 0;
  for (int run = 0; summed < elements; ++run) {
    SimulationOptions options = random_options(random, mode);
    options.shared = shared;
    SimulatedJob job(options);
    if (run % 3 == 1) job.restart_switch_at(milliseconds(1 + random() % 40));
    if (run % 5 == 2)
      job.restart_worker_at(milliseconds(1 + random() % 40), static_cast<int>(random() % options.workers));
    if (run % 4 == 3) job.think_up_to(milliseconds(30));
    std::vector<std::size_t> lengths;
    for (std::size_t i = 1 + random() % 6; i > 0; --i) lengths.push_back(random() % 20'000);
    ASSERT_EQ(run % 2 == 0 ? wrong_integers(job, options, lengths) : wrong_floats(job, options, lengths), 0U)
        << "run " << run << ", " << options.workers << " workers";
    for (const std::size_t length : lengths) summed += static_cast<std::int64_t>(length);
  }
  testing::Test::RecordProperty("elements", std::to_string(summed));
}

class Simulation : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Simulation, testing::Values(Mode::kSwitchMl, Mode::kExtended),
                         [](const auto& info) { return info.param == Mode::kSwitchMl ? "SwitchMl" : "Extended"; });

TEST_P(Simulation, RandomRunsHaveNoWrongElement) {
  std::mt19937_64 random(GetParam() == Mode::kSwitchMl ? 11 : 12);
  expect_no_wrong_element(random, GetParam(), elements_wanted() / 2, false);
}

// No place in shared memory may be overwritten too early, also if packets are repeated, late or sent to a new switch.
TEST(SharedMemory, RandomRunsHaveNoWrongElement) {
  std::mt19937_64 random(13);
  expect_no_wrong_element(random, Mode::kExtended, elements_wanted() / 2, true);
}

TEST_P(Simulation, WithoutFaultsNothingIsRetransmitted) {
  for (const int workers : {1, 2, 3, 32}) {
    SimulationOptions options;
    options.mode = GetParam();
    options.workers = workers;
    SimulatedJob job(options);
    EXPECT_EQ(wrong_integers(job, options, {1000, 0, 1, 64, 65, 5000}), 0U);
    EXPECT_EQ(job.retransmissions(), 0U);
    EXPECT_EQ(job.snapshot().jobs[0].counters.duplicates, 0U);
    // Each worker sends each chunk once.
    EXPECT_EQ(job.snapshot().jobs[0].counters.packets_in,
              static_cast<std::uint64_t>(workers) * (16 + 0 + 1 + 1 + 2 + 79));
  }
}

TEST_P(Simulation, EmptyVectorsNeedNoPackets) {
  SimulationOptions options;
  options.mode = GetParam();
  SimulatedJob job(options);
  EXPECT_EQ(wrong_floats(job, options, {0, 0}), 0U);
  EXPECT_EQ(job.snapshot().jobs[0].counters.packets_in, 0U);
}

TEST_P(Simulation, OperationNumbersWrap) {
  SimulationOptions options;
  options.mode = GetParam();
  options.workers = 3;
  options.faults = {0.05, 0.05, 0.5, microseconds(50), microseconds(100), milliseconds(2)};
  options.first_operation = 200;
  SimulatedJob job(options);
  // Long operations use all slots, short ones only the first, so slots rest for more operations than 8 bits can count.
  std::vector<std::size_t> lengths(700, 10);
  lengths[0] = lengths[300] = lengths[620] = 3000;
  EXPECT_EQ(wrong_integers(job, options, lengths), 0U);
}

// Within and between operations, with restarts of the switch or a worker.
TEST_P(Simulation, TurnNumbersWrap) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SimulationOptions options;
    options.mode = GetParam();
    options.workers = 2 + static_cast<int>(seed % 3);
    options.seed = seed;
    options.faults = {0.1, 0.1, 0.5, microseconds(50), microseconds(200), milliseconds(3)};
    options.suspect_after = milliseconds(60);
    options.first_turn = (std::uint64_t{1} << 32) - seed % 23;
    SimulatedJob job(options);
    if (seed % 3 == 1) job.restart_switch_at(milliseconds(1 + seed % 19));
    if (seed % 4 == 2) job.restart_worker_at(milliseconds(1 + seed % 17), 1);
    // One to six turns per slot, with a window of 8 packets of 64 elements.
    ASSERT_EQ(wrong_integers(job, options, {512, 1536, 10, 3072, 512, 512, 2000}), 0U) << seed;
  }
}

TEST_P(Simulation, SumsAreCorrectAfterManySwitchRestarts) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SimulationOptions options;
    options.mode = GetParam();
    options.workers = 2 + static_cast<int>(seed % 4);
    options.seed = seed;
    options.faults.loss = 0.03;
    options.faults.jitter = microseconds(200);
    options.suspect_after = milliseconds(60);
    SimulatedJob job(options);
    for (int i = 1; i < 8; ++i) job.restart_switch_at(milliseconds(7 * i + static_cast<int>(seed % 7)));
    ASSERT_EQ(wrong_floats(job, options, {6000, 100, 6000, 6000, 1, 6000, 6000}), 0U) << seed;
  }
}

// A worker misses a sum of the first operation while its peers wait in the second, with more slots than probes.
TEST_P(Simulation, SwitchMayRestartWhileWorkersAreInDifferentOperations) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SimulationOptions options;
    options.mode = GetParam();
    options.workers = 4;
    options.window = 24;
    options.seed = seed;
    options.faults.loss = 0.19;
    SimulatedJob job(options);
    job.restart_switch_at(microseconds(500 * seed));
    ASSERT_EQ(wrong_integers(job, options, {64 * 24, 64 * 24, 64 * 24}), 0U) << seed;
  }
}

// Packets of the previous job reach a switch that has just restarted.
TEST_P(Simulation, SwitchMayRestartAfterAWorker) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SimulationOptions options;
    options.mode = GetParam();
    options.workers = 5;
    options.seed = seed;
    options.faults = {0.1, 0.2, 0.5, microseconds(50), microseconds(400), milliseconds(5)};
    options.first_operation = 188;
    SimulatedJob job(options);
    job.restart_worker_at(microseconds(2000 + 50 * seed), 1);
    job.restart_switch_at(microseconds(4000 + 50 * seed));
    ASSERT_EQ(wrong_integers(job, options, {6000, 6000}), 0U) << seed;
  }
}

TEST_P(Simulation, HeavyLossTerminates) {
  SimulationOptions options;
  options.mode = GetParam();
  options.workers = 4;
  options.faults = {0.2, 0.2, 0.5, microseconds(50), milliseconds(1), milliseconds(50)};
  SimulatedJob job(options);
  EXPECT_EQ(wrong_integers(job, options, {50'000}), 0U);
  EXPECT_LT(job.now(), std::chrono::seconds(30));
}

TEST(Simulation33, SupportsMoreWorkersThanSwitchMl) {
  SimulationOptions options;
  options.workers = 33;
  options.faults.loss = 0.02;
  SimulatedJob job(options);
  EXPECT_EQ(wrong_floats(job, options, {5000, 70}), 0U);
  SimulatedJob many({.workers = 130});
  EXPECT_EQ(wrong_integers(many, {.workers = 130}, {1000}), 0U);
}

// A worker that waits for its peers does not flood the switch.
TEST(Patience, WaitingCostsFewPackets) {
  SimulationOptions options;
  options.window = 256;
  SimulatedJob job(options);
  job.think_up_to(std::chrono::seconds(20));
  EXPECT_EQ(wrong_integers(job, options, {100'000, 100'000, 100'000}), 0U);
  EXPECT_LT(job.retransmissions(), 6000U);
}

// The exponents' small packets are answered within a millisecond; a window of full packets is queued for 20.
TEST(Patience, QueueingIsNotMistakenForLoss) {
  SimulationOptions options;
  options.workers = 4;
  options.packet_elements = 256;
  options.window = 256;
  options.faults.bytes_per_second = 12.5e6;
  SimulatedJob job(options);
  EXPECT_EQ(wrong_floats(job, options, {300'000, 300'000}), 0U);
  EXPECT_LT(job.retransmissions(), job.worker(0).counts().sent / 100);
}

}  // namespace
}  // namespace weft::aggregation
