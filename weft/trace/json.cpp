#include "weft/trace/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace weft::trace {
namespace {

// How many bytes the UTF-8 sequence at the beginning of `text` has; 0 where there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
  unsigned code = length == 0 ? 0 : length == 1 ? lead : lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::array<unsigned, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code >= kLeast[length] && code <= 0x10FFFF && !surrogate ? length : 0;
}

void append_escaped(std::string& out, char c) {
  if (c == '"' || c == '\\') {
    out.append({'\\', c});
  } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
    std::array<char, 8> code{};
    std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out.append(code.data());
  } else {
    out.push_back(c);
  }
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out.append("\xEF\xBF\xBD");
    } else if (length == 1) {
      append_escaped(out, text[0]);
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out + "\"";
}

std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

}  // namespace weft::trace
