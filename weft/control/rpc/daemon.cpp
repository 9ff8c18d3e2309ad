#include "weft/control/rpc/daemon.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <vector>

#include "weft/aggregation/switch/switch_loop.h"
#include "weft/aggregation/transport/udp_transport.h"
#include "weft/control/http.h"
#include "weft/control/rpc/server.h"
#include "weft/control/status.h"

namespace weft::control::rpc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kVersion = WEFT_VERSION;
constexpr int kPorts = 65536;
constexpr std::uint64_t kOwnDescriptors = 128;  // listeners, logs, gRPC

using Transports = std::vector<std::unique_ptr<aggregation::Transport>>;

std::unique_ptr<aggregation::UdpTransport> open_transport(const aggregation::Address& listen) {
  aggregation::UdpOptions options;
  options.local = listen;
  options.for_switch = true;  // one receiver must not delay or stop the others
  return std::make_unique<aggregation::UdpTransport>(options);
}

void require_ports(const aggregation::Address& first, int ports) {
  if (first.port + ports <= kPorts) return;
  throw std::system_error(EADDRNOTAVAIL, std::generic_category(),
                          "weft: " + std::to_string(ports) + " UDP ports starting at " + first.describe() +
                              " exceed 65535; use a lower --listen port or fewer --ports");
}

Transports open_row(const aggregation::Address& first, int ports) {
  require_ports(first, ports);
  Transports row;
  row.push_back(open_transport(first));
  const aggregation::Address begin = row.front()->local();
  require_ports(begin, ports);
  for (int i = 1; i < ports; ++i) {
    row.push_back(open_transport({begin.ipv4, static_cast<std::uint16_t>(begin.port + i)}));
  }
  return row;
}

// Opens `ports` consecutive ports; if the listening port is 0, it searches for free ones.
Transports open_transports(const aggregation::Address& listen, int ports) {
  constexpr int kTries = 50;
  for (int i = 0; listen.port == 0 && i < kTries; ++i) {
    try {
      return open_row(listen, ports);
    } catch (const std::system_error&) {  // a port is in use or out of range: try elsewhere
    }
  }
  return open_row(listen, ports);
}

const int kWantedBuffer = 2 * aggregation::UdpOptions{}.buffer_bytes;  // Linux reports twice the requested size

int receive_buffer(const aggregation::Transport& transport) {
  return dynamic_cast<const aggregation::UdpTransport&>(transport).receive_buffer();
}

aggregation::SwitchLimits with_port(aggregation::SwitchLimits limits, std::uint16_t port) {
  limits.port = port;
  return limits;
}

}  // namespace

std::uint64_t descriptors_of(const DaemonOptions& options) {
  constexpr std::uint64_t kEach = 3;  // per control connection: the client's socket and a pair between relay and gRPC
  return kEach * ConnectionLimits{}.connections + (options.with_http ? HttpLimits{}.connections : 0) +
         static_cast<std::uint64_t>(options.limits.ports) + kOwnDescriptors;
}

struct Daemon::Parts {
  explicit Parts(DaemonOptions given)
      : options(std::move(given)),
        transports(open_transports(options.listen, options.limits.ports)),
        data(transports.front()->local()),
        buffer(receive_buffer(*transports.front())),
        jobs(with_port(options.limits, data.port), aggregation::random_epoch()),
        loop(jobs, std::move(transports)),
        server({options.control, options.listen.ipv4, options.keys, options.open, {}, options.multihomed}, jobs,
               counters) {
    if (buffer < kWantedBuffer) {
      spdlog::warn(
          "the receive buffer of each UDP socket is {} KiB instead of {} KiB, so bursts will be lost; raise "
          "net.core.rmem_max, or start the switch with CAP_NET_ADMIN",
          buffer >> 10, kWantedBuffer >> 10);
    }
    if (options.with_http) http = std::make_unique<HttpServer>(options.http, pages(), counters);
    thread = std::thread([this] { loop.run(); });
  }
  ~Parts() {
    http.reset();
    server.stop();
    loop.stop();
    thread.join();
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  [[nodiscard]] Status status() const {
    const double uptime = std::chrono::duration<double>(Clock::now() - started).count();
    return {jobs.snapshot(aggregation::steady_now()), &counters, server.connections(), uptime, kVersion};
  }
  [[nodiscard]] Pages pages() const {
    return {{"/", {"text/html; charset=utf-8", [this] { return page(status()); }}},
            {"/metrics", {"text/plain; version=0.0.4; charset=utf-8", [this] { return metrics(status()); }}},
            {"/healthz", {"text/plain", [] { return std::string("ok\n"); }}}};
  }

  DaemonOptions options;
  EventCounters counters;
  Clock::time_point started = Clock::now();
  Transports transports;  // moved into the loop
  aggregation::Address data;
  int buffer;
  int unfiltered = 0;  // at the last check
  aggregation::Jobs jobs;
  aggregation::SwitchLoop loop;
  Server server;
  std::unique_ptr<HttpServer> http;
  std::thread thread;
};

Daemon::Daemon(DaemonOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {}
Daemon::~Daemon() = default;

aggregation::Address Daemon::data_address() const { return parts_->data; }
aggregation::Address Daemon::control_address() const { return {parts_->options.control.ipv4, parts_->server.port()}; }

aggregation::Address Daemon::http_address() const {
  if (!parts_->http) return {};
  return {parts_->options.http.ipv4, parts_->http->port()};
}

void Daemon::set_keys(const JobKeys& keys) { parts_->server.set_keys(keys); }

void Daemon::reclaim_idle() {
  const std::size_t ended = parts_->server.sessions().reclaim(parts_->options.idle);
  if (ended > 0) {
    spdlog::info("ended {} session(s) without packets for {} s", ended, parts_->options.idle.count());
  }
  const int unfiltered = parts_->jobs.snapshot(aggregation::steady_now()).unfiltered_ports;
  if (unfiltered > parts_->unfiltered) {
    spdlog::warn(
        "{} port(s) have more workers than a kernel filter can name and accept packets from any source; raise "
        "net.core.optmem_max or --ports",
        unfiltered);
  }
  parts_->unfiltered = unfiltered;
}

std::string Daemon::summary() const {
  const auto jobs = parts_->jobs.snapshot(aggregation::steady_now());
  return std::to_string(jobs.jobs_admitted) + " jobs admitted, " + std::to_string(jobs.jobs_refused) + " refused, " +
         std::to_string(jobs.jobs.size()) + " live";
}

}  // namespace weft::control::rpc
