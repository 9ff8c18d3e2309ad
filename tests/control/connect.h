// TCP connections to a server of this process.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "weft/aggregation/transport/socket_address.h"

namespace weft::control {

constexpr std::uint32_t kLoopback = 0x7F000001;

inline void connect_to(int fd, std::uint16_t port) {
  const sockaddr_in name = aggregation::to_socket_address({kLoopback, port});
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
}

inline int connect_to(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  connect_to(fd, port);
  return fd;
}

}  // namespace weft::control
