#include "weft/control/socket.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>

#include "weft/aggregation/transport/socket_address.h"

namespace weft::control {
namespace {

constexpr int kBacklog = 128;
constexpr int kReceiveBuffer = 16 << 10;  // requests are small; limits the kernel's memory for clients that send more
constexpr int kOctets = 6;                // length of a MAC address

using NameOf = int (*)(int, sockaddr*, socklen_t*);

aggregation::Address address_by(NameOf name_of, int fd) {
  sockaddr_in name{};
  socklen_t length = sizeof(name);
  if (name_of(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0 || name.sin_family != AF_INET) return {};
  return aggregation::from_socket_address(name);
}

// Addresses of the machine's interfaces.
struct Interfaces {
  std::map<std::uint32_t, std::string> names;     // by IPv4 address
  std::map<std::string, std::uint64_t> hardware;  // MAC addresses by name
};

Interfaces read_interfaces() {
  Interfaces found;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return found;
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const std::string full = entry->ifa_name;  // a secondary address of eth0 has the name "eth0:1"
    const std::string name = full.substr(0, full.find(':'));
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto& internet = reinterpret_cast<const sockaddr_in&>(*entry->ifa_addr);
      found.names[aggregation::from_socket_address(internet).ipv4] = name;
    } else if (entry->ifa_addr->sa_family == AF_PACKET) {
      const auto& link = reinterpret_cast<const sockaddr_ll&>(*entry->ifa_addr);
      if (link.sll_halen != kOctets) continue;
      std::uint64_t& address = found.hardware[name] = 0;
      for (int i = 0; i < kOctets; ++i) address = (address << 8) | link.sll_addr[i];
    }
  }
  freeifaddrs(interfaces);
  return found;
}

// Reading the interfaces takes several system calls, so requests share a copy for a second.
std::shared_ptr<const Interfaces> interfaces() {
  using Clock = std::chrono::steady_clock;
  static std::mutex mutex;
  static std::shared_ptr<const Interfaces> latest;
  static Clock::time_point read;
  const std::lock_guard lock(mutex);
  if (const auto now = Clock::now(); !latest || now - read >= std::chrono::seconds(1)) {
    latest = std::make_shared<const Interfaces>(read_interfaces());
    read = now;
  }
  return latest;
}

}  // namespace

files::FileDescriptor listen_on(const aggregation::Address& address) {
  files::FileDescriptor socket_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  const sockaddr_in name = aggregation::to_socket_address(address);
  if (socket_.get() < 0 || setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof(kReceiveBuffer)) != 0 ||
      bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(socket_.get(), kBacklog) != 0) {
    throw std::system_error(errno, std::generic_category(), "weft: cannot listen on TCP " + address.describe());
  }
  return socket_;
}

aggregation::Address local_address(int fd) { return address_by(getsockname, fd); }
aggregation::Address remote_address(int fd) { return address_by(getpeername, fd); }

bool is_own_address(std::uint32_t ipv4) { return (ipv4 >> 24) == 127 || interfaces()->names.contains(ipv4); }

std::uint64_t hardware_address(std::uint32_t ipv4) {
  const auto all = interfaces();
  const auto name = all->names.find(ipv4);
  if (name == all->names.end()) return 0;
  const auto found = all->hardware.find(name->second);
  return found == all->hardware.end() ? 0 : found->second;
}

WakeupEvent::WakeupEvent() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_.get() < 0) throw std::system_error(errno, std::generic_category(), "weft: eventfd");
}

void WakeupEvent::notify() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!write(fd_.get(), &one, sizeof(one)));
}

void WakeupEvent::clear() const noexcept {
  std::uint64_t count = 0;
  static_cast<void>(!read(fd_.get(), &count, sizeof(count)));
}

}  // namespace weft::control
