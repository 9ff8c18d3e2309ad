#include "weft/process_group/sml/link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include "weft/aggregation/packet/extended_format.h"
#include "weft/aggregation/switch/jobs.h"
#include "weft/aggregation/transport/dpdk_transport.h"
#include "weft/aggregation/transport/dummy_transport.h"
#include "weft/aggregation/transport/socket_address.h"
#include "weft/aggregation/transport/udp_transport.h"
#include "weft/aggregation/worker/error.h"
#include "weft/files/file_descriptor.h"
#include "weft/process_group/sml/load_control_client.h"

namespace weft::process_group {
namespace {

using aggregation::Address;
using aggregation::Config;
using aggregation::Mode;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::atomic<bool> g_dpdk_used{false};

constexpr int kSmallestPayload = 512;    // fits one block, and every IPv4 route
constexpr int kLargestPayload = 65'507;  // of a UDP packet
constexpr auto kLeaveTimeout = milliseconds(500);
constexpr auto kRejoinInterval = milliseconds(1000);  // interval of the check for cancellation

Mode mode_of(const Config& config) { return config.weft.mode == "extended" ? Mode::kExtended : Mode::kSwitchMl; }

void require_transport(const Config& config) {
  if (config.general.backend != "dpdk" || aggregation::has_dpdk()) return;
  throw aggregation::ConfigError(
      "weft: backend = dpdk needs a build with DPDK (cmake -DWEFT_DPDK=ON); use backend = udp");
}

sockaddr_in resolved(const std::string& host, std::int64_t port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;  // SwitchML's packets are IPv4 only
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failure != 0) {
    throw aggregation::ConfigError("weft: controller_ip '" + host +
                                   "' is not a valid address or host name: " + gai_strerror(failure));
  }
  sockaddr_in address = *reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  freeaddrinfo(found);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

// UDP socket with the route to the switch. No packet is sent.
files::FileDescriptor connected_probe(const Config& config) {
  const sockaddr_in controller = resolved(config.general.controller_ip, config.general.controller_port);
  files::FileDescriptor probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&controller), sizeof(controller)) != 0) {
    throw aggregation::ConfigError("weft: this host has no route to the switch at " + config.general.controller_ip +
                                   "; check controller_ip and the network");
  }
  return probe;
}

constexpr int kLoopbackMtu = 65'535;  // as the kernel reports it
constexpr int kEthernetMtu = 1500;    // a larger MTU of this host does not show that the whole route supports it

int route_mtu(const Config& config) {
  int mtu = kEthernetMtu;
  socklen_t length = sizeof(mtu);
  const files::FileDescriptor probe = connected_probe(config);
  getsockopt(probe.get(), IPPROTO_IP, IP_MTU, &mtu, &length);
  return mtu;
}

// Memory to share with a switch on this machine; null on other routes.
std::shared_ptr<const aggregation::SharedMemory> memory_for(const Config& config) {
  const bool wanted = config.general.backend == "udp" && config.udp.shared_memory && mode_of(config) == Mode::kExtended;
  if (!wanted || route_mtu(config) < kLoopbackMtu) return nullptr;
  return aggregation::SharedMemory::create(static_cast<int>(config.general.max_outstanding_packets),
                                           static_cast<int>(config.general.packet_numel));
}

// Local address of the route to the switch.
std::uint32_t own_address(const Config& config) {
  const std::string& backend = config.general.backend;
  const std::string& wanted = backend == "dpdk" ? config.dpdk.worker_ip : config.udp.worker_ip;
  if (!wanted.empty()) {
    const auto given = Address::parse(wanted);
    if (given && given->port == 0) return given->ipv4;
    throw aggregation::ConfigError("weft: [backend." + backend + "] worker_ip must be an IPv4 address, got '" + wanted +
                                   "'");
  }
  const files::FileDescriptor probe = connected_probe(config);
  sockaddr_in own{};
  socklen_t length = sizeof(own);
  getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &length);
  return aggregation::from_socket_address(own).ipv4;
}

std::unique_ptr<aggregation::Transport> open_udp(const Config& config) {
  aggregation::UdpOptions options;
  if (!config.udp.worker_ip.empty())
    options.local.ipv4 = own_address(config);  // the source address of packets must match
  options.local.port = static_cast<std::uint16_t>(config.udp.worker_port);
  options.segmentation = config.udp.segmentation_offload;
  return std::make_unique<aggregation::UdpTransport>(options);
}

std::unique_ptr<aggregation::Transport> open_dpdk(const Config& config) {
  aggregation::DpdkOptions options;
  options.local = {own_address(config), static_cast<std::uint16_t>(config.dpdk.worker_port)};
  options.cores = config.dpdk.cores;
  options.extra_eal_options = config.dpdk.extra_eal_options;
  options.port_id = static_cast<int>(config.dpdk.port_id);
  options.pool_size = static_cast<int>(config.dpdk.pool_size);
  options.pool_cache_size = static_cast<int>(config.dpdk.pool_cache_size);
  options.burst_rx = static_cast<int>(config.dpdk.burst_rx);
  options.burst_tx = static_cast<int>(config.dpdk.burst_tx);
  return aggregation::open_dpdk(options);
}

std::unique_ptr<aggregation::Transport> open_dummy(const Config& config, int workers) {
  return std::make_unique<aggregation::DummyTransport>(
      aggregation::DummyOptions{config.dummy.bandwidth, config.dummy.process_packets, workers});
}

std::unique_ptr<aggregation::Transport> open_transport(const Config& config, int workers) {
  if (is_dummy(config)) return open_dummy(config, workers);
  return config.general.backend == "dpdk" ? open_dpdk(config) : open_udp(config);
}

// Returns the admission that an otherwise idle switch would grant.
aggregation::JoinResponse dummy_response(const aggregation::JobSpec& job) {
  const auto answer = aggregation::Jobs({}, /*epoch=*/1).admit(job, aggregation::Time{0});
  if (const auto* refusal = std::get_if<aggregation::Refusal>(&answer)) {
    throw aggregation::ConfigError("weft: " + refusal->text);
  }
  aggregation::JoinResponse joined;
  joined.admission = std::get<aggregation::Admission>(answer);
  joined.admission.port = 0;
  return joined;
}

aggregation::ControlClientOptions client_options(const Config& config) {
  aggregation::ControlClientOptions options;
  options.host = config.general.controller_ip;
  options.port = static_cast<std::uint16_t>(config.general.controller_port);
  options.keys = config.weft.keys;
  options.job = config.weft.job;
  return options;
}

}  // namespace

PacketPlan packets_for_route(const Config& config, int workers) {
  constexpr int kHeaders = 28;        // of IPv4 and UDP
  constexpr int kInFlight = 1 << 20;  // bytes per worker that keep all processes busy and fit into caches
  constexpr int kLeastWindow = 4;
  const int window = static_cast<int>(config.general.max_outstanding_packets);
  if (mode_of(config) == Mode::kSwitchMl || is_dummy(config)) return {256, window};
  const int mtu = route_mtu(config);
  if (mtu < kLoopbackMtu || config.general.backend != "udp") {
    const int payload = std::max(std::min(mtu, kEthernetMtu) - kHeaders, kSmallestPayload);
    return {aggregation::extended::largest_packet_elements(static_cast<std::size_t>(payload)), window};
  }
  // The switch is on this host, so its buffer probably has the size of this worker's. Bookkeeping takes half of it.
  const int in_flight = std::min(kInFlight, aggregation::UdpTransport({}).receive_buffer() / 2 / workers);
  const int payload = std::clamp(in_flight / kLeastWindow, kEthernetMtu - kHeaders, kLargestPayload);
  return {aggregation::extended::largest_packet_elements(static_cast<std::size_t>(payload)),
          std::min(window, std::max(in_flight / payload, kLeastWindow))};
}

bool is_dummy(const Config& config) { return config.general.backend == "dummy"; }

DpdkUse::DpdkUse(bool wanted) : has_(wanted) {
  if (!wanted || !g_dpdk_used.exchange(true)) return;
  throw aggregation::ConfigError(
      "weft: backend = dpdk serves one process group per process, and another group uses it; destroy that group "
      "first, or use backend = udp");
}

DpdkUse::~DpdkUse() {
  if (has_) g_dpdk_used = false;
}

Link::Link(const Config& config, const LinkOptions& options)
    : config_(config), dpdk_(config.general.backend == "dpdk" && aggregation::has_dpdk()), options_(options) {
  require_transport(config);
  auto transport = open_transport(config, options.workers);
  request_.session = options.session;
  request_.rank = static_cast<std::uint32_t>(options.rank);
  request_.workers = static_cast<std::uint32_t>(options.workers);
  request_.mode = mode_of(config);
  request_.packet_elements = static_cast<int>(config.general.packet_numel);
  request_.slots = static_cast<int>(config.general.max_outstanding_packets);
  // SwitchML's packets carry no session. A different first operation separates them from an earlier session's packets.
  if (request_.mode == Mode::kSwitchMl) request_.first_operation = static_cast<std::uint8_t>(options.session);
  request_.salt = aggregation::random_worker_salt();
  memory_ = memory_for(config);
  if (memory_) request_.memory = memory_->name();
  aggregation::JobSpec job;
  job.mode = request_.mode;
  job.workers = options.workers;
  job.packet_elements = request_.packet_elements;
  job.slots = request_.slots;
  job.first_operation = request_.first_operation;
  const aggregation::JoinResponse joined = is_dummy(config) ? dummy_response(job) : join(transport->local().port);
  // rejoin() requests at most as many slots as the switch granted here.
  request_.slots = job.slots = std::min(job.slots, joined.admission.slots);
  job.key = joined.key;
  aggregation::WorkerOptions worker = aggregation::worker_options(job, options.rank, joined.switch_address);
  worker.salt = request_.salt;
  if (memory_) worker.memory = memory_->slots();
  worker.timeout = options.timeout;
  if (client_) worker.rejoin = [this] { return rejoin(); };
  session_ = std::make_unique<aggregation::WorkerSession>(std::move(transport), worker, joined.admission);
}

aggregation::JoinResponse Link::join(std::uint16_t port) {
  request_.address = {own_address(config_), port};
  client_ = open_control_client(client_options(config_));
  return client_->join(request_, seconds(config_.weft.setup_timeout_s));
}

Link::~Link() { leave(); }

void Link::leave() noexcept {
  if (std::exchange(left_, true) || !client_) return;
  try {
    client_->leave(request_.session, request_.rank, kLeaveTimeout);
  } catch (const std::exception&) {  // the switch will end the idle session
  }
}

void Link::cancel(const std::string& reason) {
  session_->cancel(reason);  // first, so that rejoin() ends with this reason
  cancelled_ = true;
}

std::optional<aggregation::Admission> Link::rejoin() {
  const auto deadline = std::chrono::steady_clock::now() + seconds(config_.weft.setup_timeout_s);
  aggregation::JoinRequest request = request_;
  if (request.mode == Mode::kSwitchMl) {
    request.first_operation = static_cast<std::uint8_t>(session_->operation_number() - 1);
  }
  while (!cancelled_) {
    try {
      return client_->join(request, kRejoinInterval).admission;
    } catch (const aggregation::SwitchUnreachable& error) {
      if (std::chrono::steady_clock::now() > deadline) throw aggregation::JobLost(error.what());
    }
  }
  return std::nullopt;
}

}  // namespace weft::process_group
