// A switch on a UDP socket of this host, and workers in threads.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "weft/aggregation/switch/jobs.h"
#include "weft/aggregation/switch/switch_loop.h"
#include "weft/aggregation/transport/udp_transport.h"
#include "weft/aggregation/worker/worker_session.h"

namespace weft::aggregation {

inline constexpr Address kLoopback{0x7f000001, 0};

class LiveSwitch {
 public:
  explicit LiveSwitch(std::uint64_t epoch = 1, const UdpOptions& options = switch_options())
      : LiveSwitch(std::make_unique<UdpTransport>(options), epoch) {}
  explicit LiveSwitch(std::unique_ptr<UdpTransport> transport, std::uint64_t epoch = 1) {
    SwitchLimits limits;
    limits.port = transport->local().port;
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::move(transport));
    start(std::move(transports), limits, epoch);
  }
  LiveSwitch(std::vector<std::unique_ptr<Transport>> ports, const SwitchLimits& limits) {
    start(std::move(ports), limits, 1);
  }
  ~LiveSwitch() { stop(); }
  LiveSwitch(const LiveSwitch&) = delete;
  LiveSwitch& operator=(const LiveSwitch&) = delete;

  // Restarts the switch like a new process with other ports.
  void restart(std::vector<std::unique_ptr<Transport>> transports, const SwitchLimits& limits,
               std::uint64_t epoch = 2) {
    stop();
    start(std::move(transports), limits, epoch);
  }

  static UdpOptions switch_options() {
    UdpOptions options;
    options.local = kLoopback;
    options.for_switch = true;
    return options;
  }

  Address address;
  std::unique_ptr<Jobs> jobs;
  std::unique_ptr<SwitchLoop> loop;
  std::thread thread;

 private:
  void start(std::vector<std::unique_ptr<Transport>> transports, const SwitchLimits& limits, std::uint64_t epoch) {
    address = transports.front()->local();
    jobs = std::make_unique<Jobs>(limits, epoch);
    loop = std::make_unique<SwitchLoop>(*jobs, std::move(transports));
    thread = std::thread([this] { loop->run(); });
  }
  void stop() {
    loop->stop();
    thread.join();
    loop.reset();  // before the jobs that it refers to
  }
};

struct LiveOptions {
  Mode mode = Mode::kExtended;
  int workers = 2;
  int packet_elements = 256;
  int window = 64;
  bool segmentation = true;
  std::uint64_t session = 1;
  SessionKey key{7, 7, 7};  // zeros: packets have no tag
  Duration timeout = std::chrono::seconds(60);
  std::function<std::optional<Admission>()> rejoin{};
  std::function<std::unique_ptr<Transport>(int rank)> make_transport{};  // default: loopback
  std::function<Address(int rank)> switch_seen_by{};                     // default: the switch's own address
};

// Sessions of all ranks of an admitted job.
class LiveJob {
 public:
  LiveJob(LiveSwitch& target, const LiveOptions& options) : options(options) {
    std::vector<std::unique_ptr<Transport>> transports;
    for (int rank = 0; rank < options.workers; ++rank) {
      transports.push_back(options.make_transport ? options.make_transport(rank) : on_loopback());
      spec.addresses.push_back(transports.back()->local());
    }
    spec.name = "live";
    spec.session = options.session;
    spec.mode = options.mode;
    spec.workers = options.workers;
    spec.packet_elements = options.packet_elements;
    spec.slots = options.window;
    spec.key = options.key;
    admission = std::get<Admission>(target.jobs->admit(spec, steady_now()));
    for (int rank = 0; rank < options.workers; ++rank) {
      sessions.push_back(std::make_unique<WorkerSession>(std::move(transports[static_cast<std::size_t>(rank)]),
                                                         options_of(target, rank), admission));
    }
  }

  // Runs body(rank, session) in one thread per rank; throws the exception of the lowest rank.
  void run(const std::function<void(int, WorkerSession&)>& body) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(sessions.size());
    for (std::size_t rank = 0; rank < sessions.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(static_cast<int>(rank), *sessions[rank]);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error != nullptr) std::rethrow_exception(error);
    }
  }

  LiveOptions options;
  JobSpec spec;
  Admission admission;
  std::vector<std::unique_ptr<WorkerSession>> sessions;

 private:
  [[nodiscard]] std::unique_ptr<Transport> on_loopback() const {
    UdpOptions udp;
    udp.local = kLoopback;
    udp.segmentation = options.segmentation;
    return std::make_unique<UdpTransport>(udp);
  }
  [[nodiscard]] WorkerOptions options_of(const LiveSwitch& target, int rank) const {
    const Address address = options.switch_seen_by ? options.switch_seen_by(rank) : target.address;
    WorkerOptions worker = worker_options(spec, rank, address);
    worker.timeout = options.timeout;
    worker.suspect_after = std::chrono::milliseconds(200);
    worker.rejoin = options.rejoin;
    return worker;
  }
};

}  // namespace weft::aggregation
