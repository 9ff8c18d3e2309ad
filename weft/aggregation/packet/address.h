// IPv4 addresses with UDP ports, in host byte order.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::aggregation {

// SwitchML's wire format is defined over IPv4 only.
struct Address {
  std::uint32_t ipv4 = 0;
  std::uint16_t port = 0;

  // Returns text such as "10.0.0.1:48864".
  [[nodiscard]] std::string describe() const;
  // Parses "10.0.0.1:48864" or "10.0.0.1" (port 0); returns nullopt for any other text.
  [[nodiscard]] static std::optional<Address> parse(std::string_view text);

  friend auto operator<=>(const Address&, const Address&) = default;
};

// A peer and the local address that it sends to. A peer accepts answers only from that address.
struct Route {
  Address peer;
  std::uint32_t own = 0;  // IPv4; 0: chosen by the routing table

  Route() = default;
  Route(const Address& peer, std::uint32_t own = 0)
      : peer(peer), own(own) {}  // implicit: most hosts have only one address

  friend bool operator==(const Route&, const Route&) = default;
};

}  // namespace weft::aggregation
