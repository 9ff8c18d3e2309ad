#include "weft/aggregation/transport/dpdk_transport.h"

#include <net/if.h>
#include <net/if_arp.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/transport/socket_address.h"
#include "weft/aggregation/transport/udp_frame.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {
namespace {

constexpr int kRings = 1024;  // descriptors per queue
constexpr int kPacketBuffers = 4096;
constexpr Duration kLookEagerly = std::chrono::milliseconds(1);  // afterwards the transport sleeps between polls
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kAskEvery = std::chrono::milliseconds(10);
constexpr int kQuestions = 200;

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error("DPDK: " + what + ": " + rte_strerror(error < 0 ? -error : error));
}
int checked(int result, const std::string& what) {
  if (result < 0) fail(what, result);
  return result;
}

// Runs once per process, even if it fails. DPDK pins the calling thread to its first core, so the affinity is restored.
void start_dpdk(const DpdkOptions& options) {
  static std::once_flag once;
  std::call_once(once, [&] {
    std::vector<std::string> words{"weft", "-l", options.cores};
    std::istringstream extra(options.extra_eal_options);
    for (std::string word; extra >> word;) words.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    cpu_set_t cores;
    pthread_getaffinity_np(pthread_self(), sizeof cores, &cores);
    const int started = rte_eal_init(static_cast<int>(arguments.size()), arguments.data());
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    if (started < 0)
      fail("initialisation failed with extra_eal_options '" + options.extra_eal_options + "'", rte_errno);
  });
}

// The kernel also sees the packets. This socket, which is never read, prevents "port unreachable" answers, reserves the
// port and resolves hardware addresses.
class KernelSide {
 public:
  explicit KernelSide(const Address& local) : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), local_(local) {
    const sockaddr_in address = to_socket_address(local);
    const int smallest = 0;
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &smallest, sizeof smallest);
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::system_error(errno, std::generic_category(), "UDP address " + local.describe() + " is not available");
    }
    sockaddr_in bound{};
    socklen_t length = sizeof bound;
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    local_.port = from_socket_address(bound).port;
  }

  [[nodiscard]] const Address& local() const { return local_; }
  // Blocks for two seconds at most, then throws.
  [[nodiscard]] MacAddress mac_of(const Address& peer, const std::string& interface) const {
    const sockaddr_in discard = to_socket_address({peer.ipv4, 9});
    for (int question = 0; question < kQuestions; ++question) {
      ::sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&discard), sizeof discard);
      arpreq entry{};
      std::memcpy(&entry.arp_pa, &discard, sizeof discard);
      std::strncpy(entry.arp_dev, interface.c_str(), sizeof entry.arp_dev - 1);
      if (::ioctl(socket_.get(), SIOCGARP, &entry) == 0 && (entry.arp_flags & ATF_COM) != 0) {
        MacAddress mac{};
        std::memcpy(mac.data(), entry.arp_ha.sa_data, mac.size());
        return mac;
      }
      std::this_thread::sleep_for(kAskEvery);
    }
    throw std::runtime_error("DPDK: " + peer.describe() +
                             " does not answer ARP; the switch must be in the same subnet");
  }

 private:
  files::FileDescriptor socket_;
  Address local_;
};

class DpdkTransport final : public Transport {
 public:
  explicit DpdkTransport(const DpdkOptions& options)
      : options_(options),
        kernel_((start_dpdk(options), options.local)),
        wakes_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        port_(static_cast<std::uint16_t>(options.port_id)) {
    if (rte_eth_dev_is_valid_port(port_) == 0) {
      throw std::runtime_error("DPDK: port " + std::to_string(port_) +
                               " does not exist; check port_id and extra_eal_options");
    }
    make_pool();
    start_port();
  }
  ~DpdkTransport() override {
    rte_eth_dev_stop(port_);
    rte_mempool_free(pool_);
  }

  [[nodiscard]] Address local() const override { return kernel_.local(); }

  void send(Outbox& out) override {
    out.for_each_run(static_cast<std::size_t>(options_.burst_tx), ~std::size_t{0},
                     [&](std::span<const Route> to, std::span<const Outbox::Packet> packets) {
                       for (const Route& receiver : to) send_burst(receiver.peer, packets);
                     });
    out.clear();
  }

  bool receive(Duration longest, const Receiver& receiver) override {
    const Time start = steady_now();
    while (!take_burst(receiver)) {
      const Duration waited = steady_now() - start;
      if (waited >= longest || woken_.exchange(false)) return false;
      if (waited > kLookEagerly) std::this_thread::sleep_for(kNap);
    }
    return true;
  }

  void wake() override { woken_ = true; }
  [[nodiscard]] int descriptor() const override { return wakes_.get(); }
  bool accept_only(std::span<const Address> sources) override {
    sources_.emplace(sources.begin(), sources.end());
    return true;
  }

 private:
  void make_pool() {
    const std::string name = "weft" + std::to_string(port_);
    const auto size = static_cast<unsigned>(options_.pool_size > 0 ? options_.pool_size : kPacketBuffers);
    pool_ = rte_pktmbuf_pool_create(name.c_str(), size, static_cast<unsigned>(options_.pool_cache_size), 0,
                                    RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (pool_ == nullptr) fail("cannot allocate buffers for " + std::to_string(size) + " packets", rte_errno);
  }

  void start_port() {
    const std::string name = "port " + std::to_string(port_);
    const rte_eth_conf defaults{};
    rte_eth_dev_info info{};
    checked(rte_eth_dev_info_get(port_, &info), name);
    checked(rte_eth_dev_configure(port_, 1, 1, &defaults), name);
    std::uint16_t receive_ring = kRings;
    std::uint16_t send_ring = kRings;
    checked(rte_eth_dev_adjust_nb_rx_tx_desc(port_, &receive_ring, &send_ring), name);
    checked(rte_eth_rx_queue_setup(port_, 0, receive_ring, SOCKET_ID_ANY, nullptr, pool_), name + " to receive");
    checked(rte_eth_tx_queue_setup(port_, 0, send_ring, SOCKET_ID_ANY, nullptr), name + " to send");
    checked(rte_eth_dev_start(port_), name + " to start");
    rte_ether_addr mac{};
    checked(rte_eth_macaddr_get(port_, &mac), name + "'s hardware address");
    std::memcpy(own_mac_.data(), mac.addr_bytes, own_mac_.size());
    char interface[IF_NAMESIZE] = "";
    if (info.if_index != 0 && if_indextoname(info.if_index, interface) != nullptr) interface_ = interface;
  }

  const MacAddress& mac_of(const Address& peer) {
    const auto known = macs_.find(peer.ipv4);
    if (known != macs_.end()) return known->second;
    return macs_[peer.ipv4] = kernel_.mac_of(peer, interface_);
  }

  void send_burst(const Address& to, std::span<const Outbox::Packet> packets) {
    const FrameEnd from{own_mac_, kernel_.local()};
    const FrameEnd there{mac_of(to), to};
    burst_.clear();
    for (const Outbox::Packet& packet : packets) {
      rte_mbuf* frame = make_frame(from, there, packet);
      if (frame != nullptr) burst_.push_back(frame);
    }
    const std::uint16_t sent = rte_eth_tx_burst(port_, 0, burst_.data(), static_cast<std::uint16_t>(burst_.size()));
    for (std::size_t i = sent; i < burst_.size(); ++i) rte_pktmbuf_free(burst_[i]);  // dropped, as on any full link
  }

  // Returns null if no buffer is free; the packet is then dropped.
  rte_mbuf* make_frame(const FrameEnd& from, const FrameEnd& to, Outbox::Packet packet) {
    rte_mbuf* frame = rte_pktmbuf_alloc(pool_);
    if (frame == nullptr) return nullptr;
    const std::size_t size = kFrameHeaderBytes + packet.size();
    char* room = size <= 0xffff ? rte_pktmbuf_append(frame, static_cast<std::uint16_t>(size)) : nullptr;
    if (room == nullptr) {
      rte_pktmbuf_free(frame);
      throw std::runtime_error("DPDK: a packet of " + std::to_string(packet.size()) +
                               " bytes does not fit into a buffer; choose a smaller packet_numel");
    }
    auto* bytes = reinterpret_cast<std::byte*>(room);
    write_frame_header(std::span<std::byte, kFrameHeaderBytes>(bytes, kFrameHeaderBytes), from, to, packet.size());
    std::memcpy(bytes + kFrameHeaderBytes, packet.data(), packet.size());
    return frame;
  }

  bool take_burst(const Receiver& receiver) {
    received_.resize(static_cast<std::size_t>(options_.burst_rx));
    const std::uint16_t count =
        rte_eth_rx_burst(port_, 0, received_.data(), static_cast<std::uint16_t>(received_.size()));
    bool any = false;
    for (std::uint16_t i = 0; i < count; ++i) {
      rte_mbuf* frame = received_[i];
      const auto datagram = read_frame({rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len});
      if (datagram && frame->nb_segs == 1 && datagram->to == kernel_.local() && is_welcome(datagram->from)) {
        receiver({datagram->payload, datagram->payload.size(), datagram->from});
        any = true;
      }
      rte_pktmbuf_free(frame);
    }
    return any;
  }

  [[nodiscard]] bool is_welcome(const Address& from) const {
    if (!sources_) return true;
    for (const Address& source : *sources_) {
      if (source.ipv4 == from.ipv4 && (source.port == 0 || source.port == from.port)) return true;
    }
    return false;
  }

  DpdkOptions options_;
  KernelSide kernel_;
  files::FileDescriptor wakes_;
  std::uint16_t port_;
  rte_mempool* pool_ = nullptr;
  MacAddress own_mac_{};
  std::string interface_;
  std::map<std::uint32_t, MacAddress> macs_;
  std::optional<std::vector<Address>> sources_;
  std::vector<rte_mbuf*> burst_;
  std::vector<rte_mbuf*> received_;
  std::atomic<bool> woken_ = false;
};

}  // namespace

bool has_dpdk() { return true; }

std::unique_ptr<Transport> open_dpdk(const DpdkOptions& options) { return std::make_unique<DpdkTransport>(options); }

}  // namespace weft::aggregation
