// TCP sockets and local addresses for the control plane.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "weft/aggregation/packet/address.h"
#include "weft/files/file_descriptor.h"

namespace weft::control {

// Opens a listening, non-blocking TCP socket; port 0: any free port. Throws std::system_error with the address.
[[nodiscard]] files::FileDescriptor listen_on(const aggregation::Address& address);
[[nodiscard]] aggregation::Address local_address(int fd);
[[nodiscard]] aggregation::Address remote_address(int fd);
// Whether an address belongs to this machine: loopback or one of its interfaces. A new interface counts after at most a
// second.
[[nodiscard]] bool is_own_address(std::uint32_t ipv4);
// MAC address of the interface with this address, as a 48-bit number with the first octet highest (SwitchML's
// encoding). 0 for loopback and unknown addresses.
[[nodiscard]] std::uint64_t hardware_address(std::uint32_t ipv4);

// eventfd that interrupts poll() in another thread.
class WakeupEvent {
 public:
  WakeupEvent();
  [[nodiscard]] int fd() const { return fd_.get(); }
  void notify() const noexcept;
  void clear() const noexcept;

 private:
  files::FileDescriptor fd_;
};

}  // namespace weft::control
