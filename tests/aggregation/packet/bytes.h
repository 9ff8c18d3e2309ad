// Packets written as hexadecimal digits with optional spaces.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::aggregation {

using Bytes = std::vector<std::byte>;

inline Bytes from_hex(const std::string& text) {
  Bytes bytes;
  std::string digits;
  for (const char c : text) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<std::byte>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  if (!digits.empty()) throw std::invalid_argument("odd number of hexadecimal digits");
  return bytes;
}

}  // namespace weft::aggregation
