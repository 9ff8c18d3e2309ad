#include "weft/aggregation/transport/udp_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <system_error>
#include <thread>

namespace weft::aggregation {
namespace {

using namespace std::chrono_literals;
constexpr Address kLoopback{0x7f000001, 0};

UdpTransport on_loopback() {
  UdpOptions options;
  options.local = kLoopback;
  return UdpTransport(options);
}

Duration processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void send(UdpTransport& from, const Address& to, int packets) {
  Outbox out;
  for (int i = 0; i < packets; ++i) std::ranges::fill(out.add(to, 64), static_cast<std::byte>(i));
  from.send(out);
}

// The numbers of received packets of 64 identical bytes.
std::vector<int> numbers_from(const UdpTransport& sender, UdpTransport& receiver, std::size_t count) {
  std::vector<int> seen;
  while (seen.size() < count && receiver.receive(5s, [&](const PacketRun& run) {
    EXPECT_EQ(run.from, sender.local());
    run.for_each([&](std::span<const std::byte> packet) {
      ASSERT_EQ(packet.size(), 64U);
      EXPECT_EQ(packet[0], packet[63]);
      seen.push_back(std::to_integer<int>(packet[63]));
    });
  })) {
  }
  return seen;
}

// Packets in quick succession make it poll before it sleeps. Polling must stop when they stop.
TEST(UdpTransport, WaitingDoesNotUseCpuTime) {
  auto sender = on_loopback();
  auto waiting = on_loopback();
  int arrived = 0;
  const auto count = [&](const PacketRun& run) { run.for_each([&](std::span<const std::byte>) { ++arrived; }); };
  while (arrived < 50) {
    send(sender, waiting.local(), 5);
    waiting.receive(100ms, count);
  }
  const Duration before = processor_time();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(waiting.receive(50ms, count));
  EXPECT_LT(processor_time() - before, 100ms) << "CPU time in half a second";
}

TEST(UdpTransport, WakeEndsPollingAndSleeping) {
  auto waiting = on_loopback();
  for (int i = 0; i < 3; ++i) {
    std::thread other([&] { waiting.wake(); });
    EXPECT_FALSE(waiting.receive(std::chrono::hours(1), [](const PacketRun&) {}));
    other.join();
  }
}

// Some packets are adjacent, some are not, and some are not in memory order.
TEST(UdpTransport, GathersPacketsFromAnyMemory) {
  auto sender = on_loopback();
  auto receiver = on_loopback();
  std::vector<std::byte> memory(8 * 64);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i / 64);
  const std::vector<int> order{0, 1, 2, 5, 6, 4, 3, 7, 7, 0};
  Outbox out;
  for (const int i : order)
    out.add_kept(receiver.local(), std::span(memory).subspan(64 * static_cast<std::size_t>(i), 64));
  sender.send(out);
  EXPECT_EQ(numbers_from(sender, receiver, order.size()), order);
}

TEST(UdpTransport, PacketsArriveWholeAndInOrder) {
  auto sender = on_loopback();
  auto receiver = on_loopback();
  send(sender, receiver.local(), 200);  // several runs
  const std::vector<int> seen = numbers_from(sender, receiver, 200);
  ASSERT_EQ(seen.size(), 200U);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int>(i));
}

// A loop over several sockets must reach the others; the rest follows with the next call.
TEST(UdpTransport, ReadsAFullSocketInBatches) {
  UdpOptions options;
  options.local = kLoopback;
  options.segmentation = false;  // one packet per run
  UdpTransport sender(options);
  UdpTransport receiver(options);
  send(sender, receiver.local(), 100);
  std::vector<int> batches;
  for (int runs = 1; runs > 0;) {
    runs = 0;
    receiver.receive(Duration{0}, [&](const PacketRun&) { ++runs; });
    batches.push_back(runs);
  }
  EXPECT_EQ(std::accumulate(batches.begin(), batches.end(), 0), 100);
  EXPECT_LE(std::ranges::max(batches), 16);
}

// The kernel refuses packets to port 0, in runs and one by one.
TEST(UdpTransport, ASwitchCountsUnsendablePacketsAndKeepsSegmentation) {
  UdpOptions options;
  options.local = kLoopback;
  options.for_switch = true;
  UdpTransport sender(options);
  auto receiver = on_loopback();
  send(sender, {kLoopback.ipv4, 0}, 5);
  EXPECT_EQ(sender.lost_on_sending(), 5U);
  send(sender, receiver.local(), 20);
  int runs = 0;
  int packets = 0;
  while (packets < 20) {
    ASSERT_TRUE(receiver.receive(5s, [&](const PacketRun& run) {
      ++runs;
      run.for_each([&](std::span<const std::byte>) { ++packets; });
    }));
  }
  EXPECT_TRUE(runs == 1 || !sender.segments_out() || !receiver.segments_in()) << runs;
  EXPECT_EQ(sender.lost_on_sending(), 5U);
}

TEST(UdpTransport, AWorkerThrowsForUnsendablePackets) {
  auto sender = on_loopback();
  EXPECT_THROW(send(sender, {kLoopback.ipv4, 0}, 1), std::system_error);
}

}  // namespace
}  // namespace weft::aggregation
