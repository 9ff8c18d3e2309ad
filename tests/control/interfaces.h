// Network interfaces of this machine, from /sys and /proc.
#pragma once

#include <ifaddrs.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "weft/aggregation/transport/socket_address.h"

namespace weft::control::tests {

struct Interface {
  std::uint32_t ipv4 = 0;
  std::uint64_t mac = 0;
};

// Parses an address such as 02:fc:00:00:00:01; returns 0 if the text is not one.
inline std::uint64_t mac_of(const std::string& text) {
  unsigned octets[6] = {};
  if (std::sscanf(text.c_str(), "%x:%x:%x:%x:%x:%x", octets, octets + 1, octets + 2, octets + 3, octets + 4,
                  octets + 5) != 6) {
    return 0;
  }
  std::uint64_t mac = 0;
  for (const unsigned octet : octets) mac = (mac << 8) | octet;
  return mac;
}

// An interface with both addresses.
inline std::optional<Interface> any_interface() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return std::nullopt;
  std::optional<Interface> found;
  for (const ifaddrs* entry = all; entry != nullptr && !found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    std::string text;
    std::ifstream(std::string("/sys/class/net/") + entry->ifa_name + "/address") >> text;
    const std::uint64_t mac = mac_of(text);
    const auto& name = *reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (mac != 0) found = Interface{aggregation::from_socket_address(name).ipv4, mac};
  }
  freeifaddrs(all);
  return found;
}

}  // namespace weft::control::tests
