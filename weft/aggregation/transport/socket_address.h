// Conversion between Address and sockaddr_in.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include "weft/aggregation/packet/address.h"

namespace weft::aggregation {

[[nodiscard]] inline sockaddr_in to_socket_address(const Address& address) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(address.port);
  result.sin_addr.s_addr = htonl(address.ipv4);
  return result;
}

[[nodiscard]] inline Address from_socket_address(const sockaddr_in& address) {
  return {ntohl(address.sin_addr.s_addr), ntohs(address.sin_port)};
}

}  // namespace weft::aggregation
