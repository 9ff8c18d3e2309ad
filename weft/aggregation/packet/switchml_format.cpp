#include "weft/aggregation/packet/switchml_format.h"

#include "weft/aggregation/packet/byte_order.h"

namespace weft::aggregation::switchml {
namespace {

constexpr std::uint8_t kMessageType = 1;
constexpr std::uint16_t kSetBit = 0x8000;
constexpr std::uint8_t kSize64 = 1;
constexpr std::uint8_t kSize256 = 3;

// Number of elements for the header's size field; 0 for invalid sizes.
std::size_t elements_of(std::uint8_t size) { return size == kSize64 ? 64 : size == kSize256 ? 256 : 0; }

}  // namespace

bool is_packet_elements(std::size_t elements) { return elements == 64 || elements == 256; }

std::size_t packet_size(const Shape& shape) { return kHeaderBytes + kExponents + 4 * shape.elements; }

std::optional<Packet> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes + kExponents) return std::nullopt;
  const auto first = std::to_integer<std::uint8_t>(bytes[0]);
  const std::size_t elements = elements_of(first & 0x07U);
  if ((first >> 4) != kMessageType || elements == 0) return std::nullopt;
  if (bytes.size() != packet_size({kExponents, elements})) return std::nullopt;
  const auto pool_index = load_big_endian<std::uint16_t>(bytes.data() + 6);
  Packet packet;
  packet.head.mode = Mode::kSwitchMl;
  packet.head.operation = std::to_integer<std::uint8_t>(bytes[1]);
  packet.head.sequence = load_big_endian<std::uint32_t>(bytes.data() + 2);
  packet.head.slot = pool_index & static_cast<std::uint16_t>(~kSetBit);
  packet.head.set = (pool_index & kSetBit) != 0 ? 1 : 0;
  packet.exponents = bytes.subspan(kHeaderBytes, kExponents);
  packet.elements = bytes.subspan(kHeaderBytes + kExponents);
  return packet;
}

Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape) {
  const std::uint8_t size = shape.elements == 64 ? kSize64 : kSize256;
  bytes[0] = static_cast<std::byte>(kMessageType << 4 | size);
  bytes[1] = static_cast<std::byte>(head.operation);
  store_big_endian(bytes.data() + 2, static_cast<std::uint32_t>(head.sequence));
  store_big_endian(bytes.data() + 6, static_cast<std::uint16_t>(head.slot | (head.set != 0 ? kSetBit : 0U)));
  return {bytes.subspan(kHeaderBytes, kExponents), bytes.subspan(kHeaderBytes + kExponents)};
}

}  // namespace weft::aggregation::switchml
