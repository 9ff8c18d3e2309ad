// Sums through a switch on the loopback interface: bandwidth and CPU time per packet.
//
// loopback [workers [window [part of a case's name [rounds]]]]: prints one JSON line per figure. Ratios are relative to
// fixed targets and to an echo of the same packets, which measures the kernel's share.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/aggregation/live_job.h"
#include "weft/aggregation/packet/packet.h"

namespace {

using namespace weft::aggregation;

constexpr std::size_t kElements = (16U << 20) / 4;
int rounds = 12;
constexpr double kPromisedGigabits = 4;
constexpr double kPromisedNanoseconds = 400;

double cpu_seconds(std::thread& thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return 0;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double own_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void report(const std::string& name, double value, const char* unit, const std::string& peer, double ratio) {
  std::printf("{\"name\": \"aggregation/%s\", \"value\": %.3f, \"unit\": \"%s\", \"peer\": \"%s\", \"ratio\": %.3f}\n",
              name.c_str(), value, unit, peer.c_str(), ratio);
  std::fflush(stdout);
}

struct Figures {
  double gigabits = 0;  // of the best round, because the machine may be busy
  double median_gigabits = 0;
  double switch_nanoseconds = 0;  // per received packet, including sending
  double worker_nanoseconds = 0;  // per packet sent and received
  double retransmitted = 0;       // share of packets
};

// Returns every packet to its sender.
class Echo {
 public:
  explicit Echo(const UdpOptions& options) : transport_(options), thread_([this] { run(); }) {}
  ~Echo() {
    stopping_ = true;
    transport_.wake();
    thread_.join();
  }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  [[nodiscard]] Address address() const { return transport_.local(); }
  [[nodiscard]] double cpu_seconds() { return ::cpu_seconds(thread_); }

 private:
  void run() {
    Outbox out;
    while (!stopping_) {
      transport_.receive(std::chrono::milliseconds(100), [&](const PacketRun& run) {
        run.for_each([&](std::span<const std::byte> packet) { out.add_kept(run.from, packet); });
        transport_.send(out);
      });
    }
  }

  std::atomic<bool> stopping_ = false;
  UdpTransport transport_;
  std::thread thread_;
};

// Keeps `window` packets in flight until `count` have returned.
void ask(UdpTransport& transport, const Address& echo, std::size_t packet_bytes, std::size_t window,
         std::size_t count) {
  const std::vector<std::byte> packets(window * packet_bytes);
  Outbox out;
  std::size_t sent = 0;
  const auto send = [&](std::size_t wanted) {
    for (std::size_t i = 0; i < wanted && sent < count; ++i, ++sent) {
      out.add_kept(echo, std::span(packets).subspan(i * packet_bytes, packet_bytes));
    }
    transport.send(out);
  };
  send(window);
  for (std::size_t back = 0; back < count;) {
    std::size_t came = 0;
    const bool any = transport.receive(std::chrono::seconds(5), [&](const PacketRun& run) {
      run.for_each([&](std::span<const std::byte>) { ++came; });
    });
    if (!any) throw std::runtime_error("loopback: no echo for 5 seconds; packets were lost");
    back += came;
    send(came);
  }
}

// CPU time of an echo per packet of this job's size, in nanoseconds.
double echo_nanoseconds(const LiveOptions& options) {
  UdpOptions udp;
  udp.local = kLoopback;
  udp.segmentation = options.segmentation;
  Echo echo(udp);
  const std::size_t packet_bytes = packet_size(options.mode, full_shape(options.mode, options.packet_elements));
  const std::size_t count = static_cast<std::size_t>(rounds) * kElements / options.packet_elements;
  std::vector<std::thread> askers;
  for (int i = 0; i < options.workers; ++i) {
    askers.emplace_back([&] {
      UdpTransport transport(udp);
      ask(transport, echo.address(), packet_bytes, static_cast<std::size_t>(options.window), count);
    });
  }
  for (std::thread& asker : askers) asker.join();
  return 1e9 * echo.cpu_seconds() / (static_cast<double>(count) * options.workers);
}

// Listens on all addresses, like the daemon by default.
UdpOptions on_all_addresses() {
  UdpOptions options = LiveSwitch::switch_options();
  options.local = {};
  return options;
}

template <class Number>
Figures measure(LiveOptions options) {
  LiveSwitch target(1, on_all_addresses());
  options.switch_seen_by = [&](int) { return Address{kLoopback.ipv4, target.address.port}; };
  LiveJob job(target, options);
  std::vector<double> seconds;
  double worker_cpu = 0;
  const double switch_before = cpu_seconds(target.thread);
  job.run([&](int rank, WorkerSession& session) {
    std::vector<Number> in(kElements);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<Number>(i % 1000) + static_cast<Number>(rank);
    std::vector<Number> out(kElements);
    const double before = own_cpu_seconds();
    for (int round = 0; round < rounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      session.all_reduce(std::span<const Number>(in), std::span(out));
      if (rank == 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    if (rank == 0) worker_cpu = own_cpu_seconds() - before;
  });
  const auto switch_packets = static_cast<double>(target.jobs->snapshot(steady_now()).jobs[0].counters.packets_in);
  const WorkerStatistics statistics = job.sessions[0]->statistics();
  std::ranges::sort(seconds);
  Figures figures;
  figures.gigabits = 8e-9 * 4 * kElements / seconds.front();
  figures.median_gigabits = 8e-9 * 4 * kElements / seconds[seconds.size() / 2];
  figures.switch_nanoseconds = 1e9 * (cpu_seconds(target.thread) - switch_before) / switch_packets;
  figures.worker_nanoseconds = 1e9 * worker_cpu / static_cast<double>(statistics.packets_sent);
  figures.retransmitted =
      static_cast<double>(statistics.retransmissions) / static_cast<double>(statistics.packets_sent);
  return figures;
}

template <class Number>
void run(const std::string& name, const LiveOptions& options) {
  const double echo_before = echo_nanoseconds(options);
  const Figures figures = measure<Number>(options);
  const double echo = (echo_before + echo_nanoseconds(options)) / 2;
  const std::string full = name + "/" + std::to_string(options.workers);
  report("bandwidth/" + full, figures.median_gigabits, "Gbit/s", "target 4 Gbit/s",
         figures.median_gigabits / kPromisedGigabits);
  report("switch_cpu_per_packet/" + full, figures.switch_nanoseconds, "ns", "target 400 ns",
         figures.switch_nanoseconds / kPromisedNanoseconds);
  report("switch_cpu_relative_to_echo/" + full, figures.switch_nanoseconds, "ns",
         "echo " + std::to_string(echo) + " ns", figures.switch_nanoseconds / echo);
  report("worker_cpu_per_packet/" + full, figures.worker_nanoseconds, "ns",
         "retransmitted " + std::to_string(figures.retransmitted), 1);
}

}  // namespace

int main(int argc, char** argv) {
  LiveOptions options;
  options.workers = argc > 1 ? std::atoi(argv[1]) : 2;
  options.window = argc > 2 ? std::atoi(argv[2]) : 256;
  const std::string wanted = argc > 3 ? argv[3] : "";
  if (argc > 4) rounds = std::atoi(argv[4]);
  const auto run_if_wanted = [&]<class Number>(const std::string& name, Number) {
    if (name.find(wanted) != std::string::npos) run<Number>(name, options);
  };
  options.mode = Mode::kSwitchMl;
  run_if_wanted("switchml/int32", std::int32_t{});
  run_if_wanted("switchml/float32", float{});
  options.segmentation = false;
  run_if_wanted("switchml_without_segmentation/int32", std::int32_t{});
  options.segmentation = true;
  options.mode = Mode::kExtended;
  options.packet_elements = 320;
  run_if_wanted("extended/float32", float{});
  return 0;
}
