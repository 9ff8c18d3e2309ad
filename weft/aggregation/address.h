// Where packets come from and go to: an IPv4 address and a UDP port, both in host byte order.
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

  // "10.0.0.1:48864"
  [[nodiscard]] std::string describe() const;
  // Of "10.0.0.1:48864" or "10.0.0.1" (port 0); nothing for any other text.
  [[nodiscard]] static std::optional<Address> parse(std::string_view text);

  friend auto operator<=>(const Address&, const Address&) = default;
};

// A peer, and which of this host's addresses it talks to: a peer takes answers from no other.
struct Route {
  Address peer;
  std::uint32_t own = 0;  // IPv4; 0: whichever the network chooses

  Route() = default;
  Route(const Address& peer, std::uint32_t own = 0) : peer(peer), own(own) {}  // implicit: most hosts have but one

  friend bool operator==(const Route&, const Route&) = default;
};

}  // namespace weft::aggregation
