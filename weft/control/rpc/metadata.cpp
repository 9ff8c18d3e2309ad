#include "weft/control/rpc/metadata.h"

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace weft::control::rpc {
namespace {

// Removes the name and the following word from the front.
bool take(std::string_view& rest, std::string_view name, std::string_view& word) {
  if (!rest.starts_with(name)) return false;
  rest.remove_prefix(name.size());
  word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return true;
}

// Like take(), but the word must be a number that fits the type.
template <class Number>
bool take_number(std::string_view& rest, std::string_view name, Number& number) {
  std::string_view word;
  if (!take(rest, name, word)) return false;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc{} && end == word.data() + word.size();
}

std::string digits_of(const aggregation::WorkerSalt& salt) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : salt) text += {kDigits[byte >> 4], kDigits[byte & 0xfU]};
  return text;
}

bool take_salt(std::string_view& rest, aggregation::WorkerSalt& salt) {
  std::string_view word;
  if (!take(rest, " salt=", word) || word.size() != 2 * salt.size()) return false;
  for (std::size_t i = 0; i < salt.size(); ++i) {
    const char* digits = word.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, salt[i], 16);
    if (error != std::errc{} || end != digits + 2) return false;
  }
  return true;
}

}  // namespace

std::string Terms::write() const {
  return std::string("mode=") + (mode == aggregation::Mode::kExtended ? "extended" : "classic") +
         " elements=" + std::to_string(packet_elements) + " port=" + std::to_string(port) +
         " slots=" + std::to_string(slots) + " first=" + std::to_string(first_operation) + " salt=" + digits_of(salt);
}

bool Terms::read(const std::string& text) {
  std::string_view rest = text;
  std::string_view word;
  const bool read = take(rest, "mode=", word) && take_number(rest, " elements=", packet_elements) &&
                    take_number(rest, " port=", port) && take_number(rest, " slots=", slots) &&
                    take_number(rest, " first=", first_operation) && take_salt(rest, salt) && rest.empty();
  mode = word == "extended" ? aggregation::Mode::kExtended : aggregation::Mode::kSwitchMl;
  return read && (word == "extended" || word == "classic") && packet_elements >= 0 && slots >= 0 && port >= 0 &&
         port <= 65535 && first_operation >= -1 && first_operation <= 255;
}

std::string write_admission(const aggregation::Admission& admission) {
  char text[160];
  std::snprintf(text, sizeof(text), "epoch=%" PRIu64 " job=%" PRIu32 " slots=%d port=%u first=%u", admission.epoch,
                admission.job, admission.slots, unsigned{admission.port}, unsigned{admission.first_operation});
  return text;
}

bool read_admission(const std::string& text, aggregation::Admission& admission) {
  std::string_view rest = text;
  return take_number(rest, "epoch=", admission.epoch) && take_number(rest, " job=", admission.job) &&
         take_number(rest, " slots=", admission.slots) && take_number(rest, " port=", admission.port) &&
         take_number(rest, " first=", admission.first_operation) && rest.empty() && admission.slots > 0;
}

}  // namespace weft::control::rpc
