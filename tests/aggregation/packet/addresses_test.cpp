// A switch that listens on all addresses answers each worker from the address that the worker's packets were sent to.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/aggregation/live_job.h"
#include "tests/aggregation/switch/switch_driver.h"

namespace weft::aggregation {
namespace {

constexpr std::uint32_t kSecond = 0x7f000002;  // 127.0.0.0/8 belongs to this host
constexpr std::uint32_t kThird = 0x7f000003;

class Addresses : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Addresses, testing::Values(Mode::kSwitchMl, Mode::kExtended),
                         [](const auto& info) { return info.param == Mode::kSwitchMl ? "SwitchMl" : "Extended"; });

TEST_P(Addresses, WorkersUseDifferentAddresses) {
  UdpOptions listening = LiveSwitch::switch_options();
  listening.local = {};
  LiveSwitch target(1, listening);
  LiveOptions options{.mode = GetParam(), .workers = 3, .timeout = std::chrono::seconds(10)};
  options.switch_seen_by = [&](int rank) {
    return Address{std::array{kLoopback.ipv4, kSecond, kThird}[static_cast<std::size_t>(rank)], target.address.port};
  };
  LiveJob job(target, options);
  job.run([&](int rank, WorkerSession& session) {
    for (int number = 0; number < 3; ++number) {
      std::vector<std::int32_t> data(50'000, rank + number);
      session.all_reduce(std::span<const std::int32_t>(data), std::span(data));
      EXPECT_EQ(std::ranges::count(data, 3 + 3 * number), 50'000);
    }
  });
}

TEST(Strangers, DoNotChangeTheSourceOfAnswers) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  Outbox out;
  const auto put = [&](int rank, std::uint32_t own, const SessionKey& key) {
    const Bytes bytes = contribution(driver.head(spec, rank, 0, 0), 1, 0, full_shape(Mode::kExtended, 64), key);
    driver.jobs.handle(bytes, {worker_address(rank), own}, Time{0}, out);
  };
  put(0, kSecond, kTestKey);
  put(0, kThird, {});
  put(1, kThird, kTestKey);
  std::vector<Route> receivers;
  out.for_each_run(1, 1 << 20, [&](auto to, auto) { receivers.assign(to.begin(), to.end()); });
  EXPECT_EQ(receivers, (std::vector<Route>{{worker_address(0), kSecond}, {worker_address(1), kThird}}));
}

TEST(Notices, ComeFromTheDestinationOfThePacket) {
  const JobSpec spec = job_spec(Mode::kExtended, 2);
  SwitchDriver driver(spec);
  Head head = driver.head(spec, 0, 0, 0);
  head.epoch = 1;
  Outbox out;
  driver.jobs.handle(contribution(head, 1), {worker_address(0), kSecond}, Time{0}, out);
  std::vector<Route> receivers;
  out.for_each_run(1, 1 << 20, [&](auto to, auto) { receivers.assign(to.begin(), to.end()); });
  EXPECT_EQ(receivers, (std::vector<Route>{{worker_address(0), kSecond}}));
}

}  // namespace
}  // namespace weft::aggregation
