#include "weft/text/utf8.h"

#include <cstddef>
#include <cstdint>

namespace weft::text {
namespace {

constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};  // smallest code point by length in bytes

std::size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC0 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF8 ? 4 : 0;
}

bool is_character(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() == 1) return first < 0x80;
  std::uint32_t code = first & (0xFFU >> (bytes.size() + 1));
  for (const char c : bytes.substr(1)) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80) return false;
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3FU);
  }
  return code >= kSmallest[bytes.size()] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = length_of(static_cast<unsigned char>(bytes[0]));
    if (length == 0 || length > bytes.size() || !is_character(bytes.substr(0, length))) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

}  // namespace weft::text
