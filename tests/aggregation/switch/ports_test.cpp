// A switch with several ports: a flood by a job or a stranger does not affect other jobs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "tests/aggregation/live_job.h"
#include "tests/aggregation/switch/switch_driver.h"

namespace weft::aggregation {
namespace {

constexpr int kPorts = 3;

// Free consecutive loopback ports.
std::vector<std::unique_ptr<Transport>> open_ports(Address& first) {
  for (first = {kLoopback.ipv4, 42'000}; first.port < 60'000; first.port += kPorts) {
    try {
      UdpOptions options = LiveSwitch::switch_options();
      options.local = first;
      return open_udp_ports(options, kPorts);
    } catch (const std::system_error&) {
    }
  }
  throw std::runtime_error("no free ports");
}

// Packets that the kernel dropped at a loopback port, from the last column of /proc/net/udp.
std::uint64_t dropped_at(std::uint16_t port) {
  std::ostringstream place;
  place << "0100007F:" << std::uppercase << std::hex << std::setw(4) << std::setfill('0') << port;
  std::ifstream table("/proc/net/udp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, local, last;
    fields >> number >> local;
    if (local != place.str()) continue;
    for (std::string field; fields >> field;) last = field;
    return std::stoull(last);
  }
  throw std::runtime_error("no socket uses port " + std::to_string(port));
}

class Ports : public testing::Test {
 protected:
  Ports() {
    auto transports = open_ports(target.address);
    SwitchLimits limits;
    limits.port = target.address.port;
    limits.ports = kPorts;
    target.restart(std::move(transports), limits);
  }

  // Sends the same packets as fast as possible during the lifetime of the object.
  class Flood {
   public:
    // Invalid packets of a stranger.
    Flood(const Address& to, std::size_t size) {
      packets_.assign(32, Bytes(size, std::byte{0x77}));
      start(to);
    }
    // Valid packets of a job with one worker. The switch answers every duplicate, which makes them as expensive as
    // possible. They go to the job's own port unless another is given.
    Flood(Jobs& jobs, Address to) {
      JobSpec spec = job_spec(Mode::kExtended, 1, 99);
      spec.slots = 32;
      spec.addresses = {transport_.local()};
      const auto admission = std::get<Admission>(jobs.admit(spec, steady_now()));
      Head head{.mode = Mode::kExtended, .job = admission.job, .epoch = admission.epoch};
      for (head.slot = 0; head.slot < 32; ++head.slot) packets_.push_back(contribution(head, 1));
      if (to.port == 0) to.port = admission.port;
      start(to);
    }
    ~Flood() {
      stop_ = true;
      thread_.join();
    }
    [[nodiscard]] std::int64_t sent() const { return sent_; }
    [[nodiscard]] std::uint16_t port() const { return to_.port; }

   private:
    static UdpOptions on_loopback() {
      UdpOptions options;
      options.local = kLoopback;
      return options;
    }
    void start(const Address& to) {
      to_ = to;
      thread_ = std::thread([this] {
        Outbox out;
        while (!stop_) {
          for (const Bytes& packet : packets_) std::ranges::copy(packet, out.add(to_, packet.size()).begin());
          transport_.send(out);
          sent_ += static_cast<std::int64_t>(packets_.size());
        }
      });
    }

    UdpTransport transport_{on_loopback()};
    Address to_;
    std::vector<Bytes> packets_;
    std::atomic<bool> stop_ = false;
    std::atomic<std::int64_t> sent_ = 0;
    std::thread thread_;
  };

  [[nodiscard]] PacketCounters counters_of(std::uint64_t session) const {
    for (const JobStatus& job : target.jobs->snapshot(steady_now()).jobs) {
      if (job.session == session) return job.counters;
    }
    throw std::runtime_error("no such job");
  }

  void expect_sums(LiveJob& job) {
    job.run([&](int rank, WorkerSession& session) {
      for (int number = 0; number < 5; ++number) {
        std::vector<std::int32_t> data(50'000, rank + number);
        session.all_reduce(std::span<const std::int32_t>(data), std::span(data));
        ASSERT_EQ(std::ranges::count(data, 1 + 2 * number), 50'000);
      }
    });
  }

  LiveSwitch target;
};

TEST_F(Ports, ExtendedJobsGetTheirOwnPorts) {
  LiveJob first(target, {.session = 1});
  LiveJob second(target, {.session = 2});
  LiveJob classic(target, {.mode = Mode::kSwitchMl, .session = 3});
  EXPECT_EQ(first.admission.port, target.address.port + 1);
  EXPECT_EQ(second.admission.port, target.address.port + 2);
  EXPECT_EQ(classic.admission.port, target.address.port);
  for (LiveJob* job : {&first, &second, &classic}) expect_sums(*job);
  target.jobs->end(1);
  EXPECT_EQ(LiveJob(target, {.session = 4}).admission.port, target.address.port + 1) << "the port with the fewest jobs";
}

TEST_F(Ports, AStrangersFloodDoesNotReachAJobsPort) {
  LiveJob job(target, {.session = 1});
  expect_sums(job);  // afterwards the port's filter is set
  const PacketCounters before = target.jobs->snapshot(steady_now()).strays;
  const Flood flood({target.address.ipv4, job.admission.port}, 300);
  expect_sums(job);
  while (flood.sent() < 1000) std::this_thread::yield();
  const PacketCounters after = target.jobs->snapshot(steady_now()).strays;
  EXPECT_EQ(after.packets_in, before.packets_in) << "the kernel dropped them";
}

// The times are not compared, because all threads share two cores. The tests of SwitchLoop check fairness.
TEST_F(Ports, AJobsOwnFloodFillsOnlyItsOwnPort) {
  LiveJob job(target, {.session = 1});
  const Flood flood(*target.jobs, {target.address.ipv4, 0});
  ASSERT_NE(flood.port(), job.admission.port);
  while (counters_of(99).answered == 0)
    std::this_thread::yield();  // the ports' filters, which also drop packets, are set
  const std::uint64_t dropped = dropped_at(flood.port());
  const std::uint64_t dropped_of_the_other = dropped_at(job.admission.port);
  while (dropped_at(flood.port()) == dropped) std::this_thread::yield();  // the flood exceeds the switch's capacity
  const std::uint64_t answered = counters_of(99).answered;
  expect_sums(job);
  EXPECT_EQ(dropped_at(job.admission.port), dropped_of_the_other);
  while (counters_of(99).answered == answered) std::this_thread::yield();  // the flooding job is served, too
}

TEST_F(Ports, AJobsFloodDoesNotReachAnothersPort) {
  LiveJob job(target, {.session = 1});
  expect_sums(job);  // afterwards the port's filter is set
  const Flood flood(*target.jobs, {target.address.ipv4, job.admission.port});
  expect_sums(job);
  while (flood.sent() < 1000) std::this_thread::yield();
  EXPECT_EQ(counters_of(99).packets_in, 0U) << "the kernel dropped them";
}

TEST_F(Ports, APortWithoutAJobReceivesNothing) {
  LiveJob job(target, {.session = 1});
  expect_sums(job);  // afterwards the ports' filters are set
  const Address idle{target.address.ipv4, static_cast<std::uint16_t>(target.address.port + 2)};
  const auto strays = [&] { return target.jobs->snapshot(steady_now()).strays.packets_in; };
  const std::uint64_t before = strays();
  {
    const Flood flood(idle, 300);
    expect_sums(job);
    while (flood.sent() < 1000) std::this_thread::yield();
  }
  expect_sums(job);  // by now the loop has served every port
  EXPECT_EQ(strays(), before) << "the kernel dropped them";
  target.jobs->end(1);
  LiveJob first(target, {.session = 2});
  LiveJob second(target, {.session = 3});
  EXPECT_EQ(second.admission.port, idle.port);
  expect_sums(second);
}

TEST_F(Ports, ReceiveNothingBeforeTheFirstJob) {
  UdpOptions options;
  options.local = kLoopback;
  UdpTransport stranger(options);
  const auto send_to = [&](int port) {
    Outbox out;
    std::ranges::fill(
        out.add(Address{target.address.ipv4, static_cast<std::uint16_t>(target.address.port + port)}, 300),
        std::byte{0x77});
    stranger.send(out);
  };
  const auto strays = [&] { return target.jobs->snapshot(steady_now()).strays.packets_in; };
  send_to(0);
  while (strays() == 0) std::this_thread::yield();  // the loop is running and has set the filters
  for (int i = 0; i < 100; ++i) send_to(1 + i % 2);
  send_to(0);
  while (strays() < 2) std::this_thread::yield();
  EXPECT_EQ(strays(), 2U);
}

TEST_F(Ports, ErrorNamesTheUnavailablePort) {
  UdpOptions options = LiveSwitch::switch_options();
  EXPECT_THROW((void)open_udp_ports(options, 2), std::invalid_argument);
  options.local.port = 65'530;
  EXPECT_THROW((void)open_udp_ports(options, 7), std::invalid_argument);
  options.local = target.address;
  EXPECT_THROW((void)open_udp_ports(options, 1), std::system_error) << "used by the switch";
}

TEST_F(Ports, AFloodOfTheFirstPortIsCountedAndOthersContinue) {
  LiveJob job(target, {.session = 1});
  const Flood flood(target.address, 300);
  expect_sums(job);
  while (target.jobs->snapshot(steady_now()).strays.rejected_for(Rejected::kMalformed) == 0) std::this_thread::yield();
}

}  // namespace
}  // namespace weft::aggregation
