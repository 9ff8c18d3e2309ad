#include "weft/aggregation/packet/packet.h"

#include "weft/aggregation/packet/extended_format.h"
#include "weft/aggregation/packet/switchml_format.h"

namespace weft::aggregation {

std::size_t packet_size(Mode mode, const Shape& shape) {
  return mode == Mode::kSwitchMl ? switchml::packet_size(shape) : extended::packet_size(shape);
}

std::size_t packet_size(const Head& head, const Shape& shape) {
  return packet_size(head.mode, head.shared ? Shape{shape.exponents, 0} : shape);
}

Shape full_shape(Mode mode, int packet_elements) {
  const auto elements = static_cast<std::size_t>(packet_elements);
  const std::size_t blocks = mode == Mode::kSwitchMl ? 1 : (elements + kBlockElements - 1) / kBlockElements;
  return {blocks * kExponentsPerBlock, elements};
}

std::optional<Packet> decode(std::span<const std::byte> bytes) {
  if (bytes.empty()) return std::nullopt;
  // The upper half of the first byte is SwitchML's message type. SwitchML uses only 1; weft uses 2.
  return (bytes[0] >> 4) == extended::kMessageType ? extended::decode(bytes) : switchml::decode(bytes);
}

Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape) {
  return head.mode == Mode::kSwitchMl ? switchml::write_head(bytes, head, shape)
                                      : extended::write_head(bytes, head, shape);
}

}  // namespace weft::aggregation
