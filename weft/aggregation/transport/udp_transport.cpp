#include "weft/aggregation/transport/udp_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/transport/socket_address.h"
#include "weft/aggregation/transport/source_filter.h"
#include "weft/aggregation/transport/timespec.h"
#include "weft/aggregation/transport/udp_message.h"

namespace weft::aggregation {
namespace {

// Maximum number of runs per receive(), so that the caller can send in between.
constexpr int kRunsPerBatch = 16;
constexpr Duration kLongestWaitForRoom = std::chrono::milliseconds(20);

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void set_buffer(int socket, int forced, int limited, int bytes) {
  if (setsockopt(socket, SOL_SOCKET, forced, &bytes, sizeof bytes) == 0) return;
  setsockopt(socket, SOL_SOCKET, limited, &bytes, sizeof bytes);  // limited by net.core.rmem_max or wmem_max
}

bool has_gso(int socket) {
  int size = 0;
  socklen_t length = sizeof size;
  return getsockopt(socket, SOL_UDP, UDP_SEGMENT, &size, &length) == 0;
}
bool enable_gro(int socket) {
  const int on = 1;
  return setsockopt(socket, SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
}

// Requests the destination address of received packets. If the kernel does not support this, answers leave from the
// address that the routing table selects.
void ask_for_destinations(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
}

// Merges adjacent packets into as few pieces of memory as possible.
std::span<iovec> gather(std::span<const Outbox::Packet> packets, std::span<iovec> pieces) {
  std::size_t count = 0;
  const std::byte* end = nullptr;
  for (const Outbox::Packet& packet : packets) {
    if (packet.data() == end) {
      pieces[count - 1].iov_len += packet.size();
    } else {
      pieces[count++] = {const_cast<std::byte*>(packet.data()), packet.size()};
    }
    end = packet.data() + packet.size();
  }
  return pieces.first(count);
}

}  // namespace

UdpTransport::UdpTransport(const UdpOptions& options)
    : options_(options),
      socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
      wakes_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      buffer_((1 << 16) / sizeof(Line)) {
  if (socket_.get() < 0 || wakes_.get() < 0) fail("cannot create a UDP socket");
  set_buffer(socket_.get(), SO_RCVBUFFORCE, SO_RCVBUF, options.buffer_bytes);
  set_buffer(socket_.get(), SO_SNDBUFFORCE, SO_SNDBUF, options.buffer_bytes);
  const sockaddr_in address = to_socket_address(options.local);
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail("UDP address " + options.local.describe() + " is not available");
  }
  if (options.for_switch && options.local.ipv4 == INADDR_ANY) ask_for_destinations(socket_.get());
  gso_ = options.segmentation && has_gso(socket_.get());
  gro_ = options.segmentation && enable_gro(socket_.get());
}

Address UdpTransport::local() const {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("getsockname");
  return from_socket_address(address);
}

int UdpTransport::receive_buffer() const {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  getsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, &length);
  return bytes;
}

void UdpTransport::send(Outbox& out) {
  out.for_each_run(Outbox::kMostSegments, Outbox::kMostBytes,
                   [&](std::span<const Route> to, std::span<const Outbox::Packet> packets) {
                     for (const Route& receiver : to) send_run(receiver, packets);
                   });
  out.clear();
}

// If the route's device cannot segment (a tunnel, or packets longer than its MTU), packets are sent one by one. The
// next run tries segmentation again, because other routes and shorter packets may support it.
void UdpTransport::send_run(const Route& to, std::span<const Outbox::Packet> packets) {
  if (gso_ && packets.size() > 1 && try_send(to, packets)) return;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    if (try_send(to, packets.subspan(i, 1))) continue;
    if (!options_.for_switch) fail("cannot send a packet to " + to.peer.describe());
    ++lost_;
  }
}

// Returns false only if sending without segmentation may succeed. Packets that the network refuses temporarily are
// lost.
bool UdpTransport::try_send(const Route& to, std::span<const Outbox::Packet> packets) {
  std::array<iovec, Outbox::kMostSegments> pieces;
  UdpMessage message(gather(packets, pieces));
  message.peer = to_socket_address(to.peer);
  if (to.own != 0) message.leave_from(to.own);
  if (packets.size() > 1) message.ask_for_segments_of(static_cast<std::uint16_t>(packets[0].size()));
  while (::sendmsg(socket_.get(), &message.header, 0) < 0) {
    if (errno == EINTR) continue;
    if ((errno == EAGAIN || errno == ENOBUFS) && wait_for_room()) continue;
    if (errno == EINVAL || errno == EMSGSIZE || errno == EIO || errno == EOPNOTSUPP) return false;
    lost_ += packets.size();
    break;
  }
  return true;
}

bool UdpTransport::wait_for_room() const {
  if (options_.for_switch) return false;
  pollfd waiting{socket_.get(), POLLOUT, 0};
  const timespec longest = to_timespec(kLongestWaitForRoom);
  return ::ppoll(&waiting, 1, &longest, nullptr) > 0;
}

bool UdpTransport::receive(Duration longest, const Receiver& receiver) {
  bool any = read_run(receiver);
  if (!any && longest > Duration{0}) any = read_after_waiting(longest, receiver);
  for (int run = 1; any && run < kRunsPerBatch; ++run) {
    if (!read_run(receiver)) break;
  }
  return any;
}

bool UdpTransport::read_after_waiting(Duration longest, const Receiver& receiver) {
  bool any = spin_wait_.find(longest, [&] { return read_run(receiver); });
  if (!any && wait(longest)) any = read_run(receiver);
  spin_wait_.end();
  return any;
}

bool UdpTransport::wait(Duration longest) const {
  std::array<pollfd, 2> waiting{pollfd{socket_.get(), POLLIN, 0}, pollfd{wakes_.get(), POLLIN, 0}};
  const timespec timeout = to_timespec(std::max(longest, Duration{0}));
  if (::ppoll(waiting.data(), waiting.size(), &timeout, nullptr) <= 0) return false;
  if (waiting[1].revents != 0) drain_wakes();
  return waiting[0].revents != 0;
}

bool UdpTransport::read_run(const Receiver& receiver) {
  iovec memory{buffer_.data(), buffer_.size() * sizeof(Line)};
  UdpMessage message({&memory, 1});
  message.make_room_for_fields();
  const ssize_t size = ::recvmsg(socket_.get(), &message.header, 0);
  if (size < 0) return false;  // no packet, or an ICMP error of an earlier packet
  const auto bytes = std::as_bytes(std::span(buffer_)).first(static_cast<std::size_t>(size));
  receiver({bytes, message.segment_size(bytes.size()), from_socket_address(message.peer), message.came_to()});
  return true;
}

void UdpTransport::wake() {
  const std::uint64_t one = 1;
  // Fails only if the counter is full; a wakeup is then already pending.
  [[maybe_unused]] const ssize_t written = ::write(wakes_.get(), &one, sizeof one);
}

bool UdpTransport::accept_only(std::span<const Address> sources) { return filter_sources(socket_.get(), sources); }

void UdpTransport::drain_wakes() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(wakes_.get(), &count, sizeof count);
}

std::vector<std::unique_ptr<Transport>> open_udp_ports(UdpOptions options, int ports) {
  if (ports < 1 || (ports > 1 && (options.local.port == 0 || options.local.port + ports > 65'536))) {
    throw std::invalid_argument(
        "cannot open " + std::to_string(ports) + " UDP ports starting at " + options.local.describe() +
        "; expected at least 1 port and, for more than 1, a nonzero first port and a last port of at most 65535");
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (int i = 0; i < ports; ++i, ++options.local.port) transports.push_back(std::make_unique<UdpTransport>(options));
  return transports;
}

}  // namespace weft::aggregation
