// TCP sockets of the control plane: owners of descriptors, and a listener.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "weft/aggregation/address.h"
#include "weft/files/file_descriptor.h"

namespace weft::control {

// A listening, non-blocking TCP socket. Throws std::system_error naming the address; port 0: a free one.
[[nodiscard]] files::FileDescriptor listen_on(const aggregation::Address& address);
[[nodiscard]] aggregation::Address local_address(int fd);
[[nodiscard]] aggregation::Address remote_address(int fd);
// Whether an address is this machine's own: loopback, or one of its interfaces'.
[[nodiscard]] bool is_own_address(std::uint32_t ipv4);
// The MAC address of the interface that has it, as SwitchML's messages carry it: 48 bits, the first octet highest. 0
// for loopback, and for an address that no interface has.
[[nodiscard]] std::uint64_t hardware_address(std::uint32_t ipv4);

// An eventfd: ends another thread's poll.
class Bell {
 public:
  Bell();
  [[nodiscard]] int fd() const { return fd_.get(); }
  void ring() const noexcept;
  void silence() const noexcept;

 private:
  files::FileDescriptor fd_;
};

}  // namespace weft::control
