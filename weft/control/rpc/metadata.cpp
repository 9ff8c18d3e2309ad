#include "weft/control/rpc/metadata.h"

#include <cinttypes>
#include <cstdio>

namespace weft::control::rpc {

std::string Terms::write() const {
  return std::string("mode=") + (mode == aggregation::Mode::kExtended ? "extended" : "classic") +
         " elements=" + std::to_string(packet_elements) + " port=" + std::to_string(port) +
         " slots=" + std::to_string(slots) + " first=" + std::to_string(first_operation);
}

bool Terms::read(const std::string& text) {
  char name[16] = "";
  int length = 0;
  const int read = std::sscanf(text.c_str(), "mode=%15s elements=%d port=%d slots=%d first=%d%n", name,
                               &packet_elements, &port, &slots, &first_operation, &length);
  if (read != 5 || static_cast<std::size_t>(length) != text.size()) return false;
  const std::string word = name;
  mode = word == "extended" ? aggregation::Mode::kExtended : aggregation::Mode::kSwitchMl;
  return (word == "extended" || word == "classic") && packet_elements >= 0 && slots >= 0 && port >= 0 &&
         port <= 65535 && first_operation >= -1 && first_operation <= 255;
}

std::string write_admission(const aggregation::Admission& admission) {
  char text[160];
  std::snprintf(text, sizeof(text), "epoch=%" PRIu64 " job=%" PRIu32 " slots=%d port=%u first=%u", admission.epoch,
                admission.job, admission.slots, unsigned{admission.port}, unsigned{admission.first_operation});
  return text;
}

bool read_admission(const std::string& text, aggregation::Admission& admission) {
  unsigned port = 0;
  unsigned first = 0;
  int length = 0;
  const int read = std::sscanf(text.c_str(), "epoch=%" SCNu64 " job=%" SCNu32 " slots=%d port=%u first=%u%n",
                               &admission.epoch, &admission.job, &admission.slots, &port, &first, &length);
  admission.port = static_cast<std::uint16_t>(port);
  admission.first_operation = static_cast<std::uint8_t>(first);
  return read == 5 && static_cast<std::size_t>(length) == text.size() && port <= 65535 && first <= 255 &&
         admission.slots > 0;
}

}  // namespace weft::control::rpc
