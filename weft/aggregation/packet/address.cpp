#include "weft/aggregation/packet/address.h"

#include <arpa/inet.h>

#include <charconv>

namespace weft::aggregation {

std::string Address::describe() const {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    text += std::to_string((ipv4 >> shift) & 0xffU) + (shift > 0 ? "." : ":");
  }
  return text + std::to_string(port);
}

std::optional<Address> Address::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  Address address;
  in_addr host{};
  if (inet_pton(AF_INET, std::string(text.substr(0, colon)).c_str(), &host) != 1) return std::nullopt;
  address.ipv4 = ntohl(host.s_addr);
  if (colon == std::string_view::npos) return address;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return address;
}

}  // namespace weft::aggregation
