#include "weft/control/socket.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <system_error>

#include "weft/aggregation/transport/socket_address.h"

namespace weft::control {
namespace {

constexpr int kBacklog = 128;
constexpr int kOctets = 6;  // length of a MAC address

using NameOf = int (*)(int, sockaddr*, socklen_t*);

aggregation::Address address_by(NameOf name_of, int fd) {
  sockaddr_in name{};
  socklen_t length = sizeof(name);
  if (name_of(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0 || name.sin_family != AF_INET) return {};
  return aggregation::from_socket_address(name);
}

// Calls `see` with the name and address of each interface address of a family.
void for_each_address(sa_family_t family, const std::function<void(const std::string&, const sockaddr&)>& see) {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return;
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
    const std::string name = entry->ifa_name;  // a secondary address of eth0 has the name "eth0:1"
    see(name.substr(0, name.find(':')), *entry->ifa_addr);
  }
  freeifaddrs(interfaces);
}

std::string interface_of(std::uint32_t ipv4) {
  std::string found;
  for_each_address(AF_INET, [&](const std::string& name, const sockaddr& address) {
    const auto& internet = reinterpret_cast<const sockaddr_in&>(address);
    if (aggregation::from_socket_address(internet).ipv4 == ipv4) found = name;
  });
  return found;
}

}  // namespace

files::FileDescriptor listen_on(const aggregation::Address& address) {
  files::FileDescriptor socket_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  const sockaddr_in name = aggregation::to_socket_address(address);
  if (socket_.get() < 0 || setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(socket_.get(), kBacklog) != 0) {
    throw std::system_error(errno, std::generic_category(), "weft: cannot listen on TCP " + address.describe());
  }
  return socket_;
}

aggregation::Address local_address(int fd) { return address_by(getsockname, fd); }
aggregation::Address remote_address(int fd) { return address_by(getpeername, fd); }

bool is_own_address(std::uint32_t ipv4) { return (ipv4 >> 24) == 127 || !interface_of(ipv4).empty(); }

std::uint64_t hardware_address(std::uint32_t ipv4) {
  const std::string interface = interface_of(ipv4);
  std::uint64_t found = 0;
  for_each_address(AF_PACKET, [&](const std::string& name, const sockaddr& address) {
    const auto& link = reinterpret_cast<const sockaddr_ll&>(address);
    if (name != interface || link.sll_halen != kOctets) return;
    for (int i = 0; i < kOctets; ++i) found = (found << 8) | link.sll_addr[i];
  });
  return found;
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
