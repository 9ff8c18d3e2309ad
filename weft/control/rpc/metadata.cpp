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

using Bytes = std::array<std::uint8_t, 16>;

std::string digits_of(const Bytes& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 0xfU]};
  return text;
}

bool take_bytes(std::string_view& rest, std::string_view name, Bytes& bytes) {
  std::string_view word;
  if (!take(rest, name, word) || word.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* digits = word.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, bytes[i], 16);
    if (error != std::errc{} || end != digits + 2) return false;
  }
  return true;
}

constexpr const char* kSharedSuffix = " shared";

// Reads the end of an admission.
bool take_shared(std::string_view rest, bool& shared) {
  shared = rest == kSharedSuffix;
  return shared || rest.empty();
}

bool take_memory(std::string_view& rest, aggregation::SharedMemoryName& memory) {
  return take_number(rest, " process=", memory.process) && take_number(rest, " descriptor=", memory.descriptor) &&
         take_bytes(rest, " cookie=", memory.cookie) && memory.process > 0 && memory.descriptor >= 0;
}

}  // namespace

std::string Terms::write() const {
  std::string text = std::string("mode=") + (mode == aggregation::Mode::kExtended ? "extended" : "classic") +
                     " elements=" + std::to_string(packet_elements) + " port=" + std::to_string(port) +
                     " slots=" + std::to_string(slots) + " first=" + std::to_string(first_operation) +
                     " salt=" + digits_of(salt);
  if (memory.process != 0) {
    text += " process=" + std::to_string(memory.process) + " descriptor=" + std::to_string(memory.descriptor) +
            " cookie=" + digits_of(memory.cookie);
  }
  return text;
}

bool Terms::read(const std::string& text) {
  std::string_view rest = text;
  std::string_view word;
  const bool read = take(rest, "mode=", word) && take_number(rest, " elements=", packet_elements) &&
                    take_number(rest, " port=", port) && take_number(rest, " slots=", slots) &&
                    take_number(rest, " first=", first_operation) && take_bytes(rest, " salt=", salt) &&
                    (rest.empty() || take_memory(rest, memory)) && rest.empty();
  mode = word == "extended" ? aggregation::Mode::kExtended : aggregation::Mode::kSwitchMl;
  return read && (word == "extended" || word == "classic") && packet_elements >= 0 && slots >= 0 && port >= 0 &&
         port <= 65535 && first_operation >= -1 && first_operation <= 255;
}

std::string write_admission(const aggregation::Admission& admission) {
  char text[160];
  std::snprintf(text, sizeof(text), "epoch=%" PRIu64 " job=%" PRIu32 " slots=%d port=%u first=%u%s", admission.epoch,
                admission.job, admission.slots, unsigned{admission.port}, unsigned{admission.first_operation},
                admission.shared ? kSharedSuffix : "");
  return text;
}

bool read_admission(const std::string& text, aggregation::Admission& admission) {
  std::string_view rest = text;
  return take_number(rest, "epoch=", admission.epoch) && take_number(rest, " job=", admission.job) &&
         take_number(rest, " slots=", admission.slots) && take_number(rest, " port=", admission.port) &&
         take_number(rest, " first=", admission.first_operation) && take_shared(rest, admission.shared) &&
         admission.slots > 0;
}

}  // namespace weft::control::rpc
