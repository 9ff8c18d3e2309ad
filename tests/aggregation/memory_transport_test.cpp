// Complete workers and a complete switch in threads, on a network in memory that loses, duplicates and reorders
// packets.
#include "tests/aggregation/memory_transport.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/aggregation/live_job.h"

namespace weft::aggregation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Address kSwitch{0x0a0a0a0a, 48864};

struct Case {
  Mode mode;
  int ports;
  std::uint64_t seed;
};

class OnMemory : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, OnMemory,
                         testing::Values(Case{Mode::kSwitchMl, 1, 1}, Case{Mode::kExtended, 1, 2},
                                         Case{Mode::kExtended, 3, 3}));

TEST_P(OnMemory, SumsAreCorrectOnAFaultyNetwork) {
  MemoryNetwork network({0.05, 0.1, 0.3, microseconds(50), microseconds(500), milliseconds(5)}, GetParam().seed);
  std::vector<std::unique_ptr<Transport>> ports;
  for (int i = 0; i < GetParam().ports; ++i) {
    ports.push_back(network.open({kSwitch.ipv4, static_cast<std::uint16_t>(kSwitch.port + i)}));
  }
  SwitchLimits limits;
  limits.ports = GetParam().ports;
  LiveSwitch target(std::move(ports), limits);
  LiveOptions options{.mode = GetParam().mode, .workers = 3, .packet_elements = 64, .window = 16};
  options.make_transport = [&](int rank) {
    return network.open({0x0a000001U + static_cast<std::uint32_t>(rank), 4000});
  };
  LiveJob job(target, options);
  job.run([](int rank, WorkerSession& session) {
    for (int number = 0; number < 3; ++number) {
      std::vector<float> floats(5000, static_cast<float>(rank + number));
      session.all_reduce(std::span<const float>(floats), std::span(floats));
      EXPECT_EQ(std::ranges::count(floats, static_cast<float>(3 + 3 * number)), 5000) << number;
      std::vector<std::int32_t> integers(3000, rank - number);
      session.all_reduce(std::span<const std::int32_t>(integers), std::span(integers));
      EXPECT_EQ(std::ranges::count(integers, 3 - 3 * number), 3000) << number;
    }
  });
  const PacketCounters counters = target.jobs->snapshot(steady_now()).jobs[0].counters;
  EXPECT_GT(counters.duplicates, 0U);
  EXPECT_GT(counters.rejected_for(Rejected::kLate), 0U);
}

TEST(MemoryTransport, WakeEndsAWait) {
  MemoryNetwork network({}, 1);
  const auto transport = network.open(kSwitch);
  std::thread other([&] { transport->wake(); });
  EXPECT_FALSE(transport->receive(std::chrono::hours(1), [](const PacketRun&) {}));
  other.join();
}

}  // namespace
}  // namespace weft::aggregation
