#include "weft/aggregation/packet.h"

#include "weft/aggregation/byte_order.h"
#include "weft/aggregation/extended_format.h"
#include "weft/aggregation/packet_tag.h"
#include "weft/aggregation/switchml_format.h"

namespace weft::aggregation {
namespace {

// Without a secret a tag proves nothing: it is 0 and takes no time.
std::uint64_t tag_of(std::span<const std::byte> tagged, const PacketKey& key) {
  return key == PacketKey{} ? 0 : packet_tag(key, tagged);
}

}  // namespace

std::size_t packet_size(Mode mode, const Shape& shape) {
  return mode == Mode::kSwitchMl ? switchml::packet_size(shape) : extended::packet_size(shape);
}

Shape full_shape(Mode mode, int packet_elements) {
  const auto elements = static_cast<std::size_t>(packet_elements);
  const std::size_t blocks = mode == Mode::kSwitchMl ? 1 : (elements + kBlockElements - 1) / kBlockElements;
  return {blocks * kExponentsPerBlock, elements};
}

std::optional<Packet> decode(std::span<const std::byte> bytes) {
  if (bytes.empty()) return std::nullopt;
  // The upper half of the first byte is SwitchML's message type: 1 is its only one, so 2 is free for ours.
  return (bytes[0] >> 4) == extended::kMessageType ? extended::decode(bytes) : switchml::decode(bytes);
}

Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape) {
  return head.mode == Mode::kSwitchMl ? switchml::write_head(bytes, head, shape)
                                      : extended::write_head(bytes, head, shape);
}

void seal(std::span<std::byte> bytes, Mode mode, const PacketKey& key) {
  if (mode == Mode::kSwitchMl) return;
  const auto tagged = bytes.first(bytes.size() - extended::kTagBytes);
  store_big_endian(bytes.data() + tagged.size(), tag_of(tagged, key));
}

bool is_authentic(std::span<const std::byte> bytes, const PacketKey& key) {
  const auto tagged = bytes.first(bytes.size() - extended::kTagBytes);
  return load_big_endian<std::uint64_t>(bytes.data() + tagged.size()) == tag_of(tagged, key);
}

}  // namespace weft::aggregation
