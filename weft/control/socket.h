// TCP sockets of the control plane: owners of descriptors, and a listener.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "weft/aggregation/address.h"

namespace weft::control {

// Owner of a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

// A listening, non-blocking TCP socket. Throws std::system_error naming the address; port 0: a free one.
[[nodiscard]] Descriptor listen_on(const aggregation::Address& address);
// The next who knocks, non-blocking; empty (-1) if there is nobody.
[[nodiscard]] Descriptor accept_from(const Descriptor& listener);
[[nodiscard]] aggregation::Address local_address(int fd);
[[nodiscard]] aggregation::Address remote_address(int fd);
// Whether an address is this machine's own: loopback, or one of its interfaces'.
[[nodiscard]] bool is_own_address(std::uint32_t ipv4);

// An eventfd: ends another thread's poll.
class Bell {
 public:
  Bell();
  [[nodiscard]] int fd() const { return fd_.get(); }
  void ring() const noexcept;
  void silence() const noexcept;

 private:
  Descriptor fd_;
};

}  // namespace weft::control
