#include "weft/control/socket.h"

#include <ifaddrs.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "weft/aggregation/socket_address.h"

namespace weft::control {
namespace {

constexpr int kBacklog = 128;

using NameOf = int (*)(int, sockaddr*, socklen_t*);

aggregation::Address address_by(NameOf name_of, int fd) {
  sockaddr_in name{};
  socklen_t length = sizeof(name);
  if (name_of(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0 || name.sin_family != AF_INET) return {};
  return aggregation::from_socket_address(name);
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

bool is_own_address(std::uint32_t ipv4) {
  if ((ipv4 >> 24) == 127) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  bool own = false;
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    own |= aggregation::from_socket_address(*reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)).ipv4 == ipv4;
  }
  freeifaddrs(interfaces);
  return own;
}

Bell::Bell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_.get() < 0) throw std::system_error(errno, std::generic_category(), "weft: eventfd");
}

void Bell::ring() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!write(fd_.get(), &one, sizeof(one)));
}

void Bell::silence() const noexcept {
  std::uint64_t count = 0;
  static_cast<void>(!read(fd_.get(), &count, sizeof(count)));
}

}  // namespace weft::control
