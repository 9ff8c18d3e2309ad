#include "weft/aggregation/packet/extended_format.h"

#include <algorithm>
#include <cstring>

#include "weft/aggregation/packet/byte_order.h"

namespace weft::aggregation::extended {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kSequenceAt = 16;
constexpr std::size_t kSlotAt = 28;
constexpr std::size_t kSharedAt = 34;

std::size_t padded(std::size_t exponents) { return (exponents + 3) / 4 * 4; }

std::optional<Kind> kind_of(std::byte first) {
  const auto number = std::to_integer<std::uint8_t>(first & std::byte{0x0f});
  if (number > static_cast<std::uint8_t>(Kind::kOperationsDiffer)) return std::nullopt;
  return static_cast<Kind>(number);
}

Head read_head(const std::byte* bytes, Kind kind) {
  Head head;
  head.kind = kind;
  head.rank = load_big_endian<std::uint16_t>(bytes + 2);
  head.job = load_big_endian<std::uint32_t>(bytes + 4);
  head.epoch = load_big_endian<std::uint64_t>(bytes + 8);
  head.sequence = load_big_endian<std::uint64_t>(bytes + kSequenceAt);
  head.operation = load_big_endian<std::uint32_t>(bytes + 24);
  head.slot = load_big_endian<std::uint16_t>(bytes + kSlotAt);
  head.set = head.sequence & 1U;
  head.shared = load_big_endian<std::uint16_t>(bytes + kSharedAt) == 1;
  return head;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

std::size_t packet_size(const Shape& shape) {
  return kHeaderBytes + padded(shape.exponents) + 4 * shape.elements + kTagBytes;
}

std::optional<Packet> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes + kTagBytes || bytes[1] != std::byte{kVersion}) return std::nullopt;
  const std::optional<Kind> kind = kind_of(bytes[0]);
  if ((bytes[0] >> 4) != kMessageType || !kind) return std::nullopt;
  const Shape shape{load_big_endian<std::uint16_t>(bytes.data() + 30),
                    load_big_endian<std::uint16_t>(bytes.data() + 32)};
  const auto shared = load_big_endian<std::uint16_t>(bytes.data() + kSharedAt);
  const std::size_t elements = shared == 0 ? shape.elements : 0;  // in the packet
  if (bytes.size() != packet_size({shape.exponents, elements})) return std::nullopt;
  // Reserved bits must be zero, so that a later version can give them a meaning.
  const auto padding = bytes.subspan(kHeaderBytes + shape.exponents, padded(shape.exponents) - shape.exponents);
  if (shared > 1 || !all_zero(padding)) return std::nullopt;
  Packet packet;
  packet.head = read_head(bytes.data(), *kind);
  packet.exponents = bytes.subspan(kHeaderBytes, shape.exponents);
  packet.elements = bytes.subspan(kHeaderBytes + padded(shape.exponents), 4 * elements);
  packet.shared_elements = shape.elements - elements;
  return packet;
}

Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape) {
  bytes[0] = (kMessageType << 4) | static_cast<std::byte>(head.kind);
  bytes[1] = std::byte{kVersion};
  store_big_endian(bytes.data() + 2, head.rank);
  store_big_endian(bytes.data() + 4, head.job);
  store_big_endian(bytes.data() + 8, head.epoch);
  store_big_endian(bytes.data() + kSequenceAt, head.sequence);
  store_big_endian(bytes.data() + 24, head.operation);
  store_big_endian(bytes.data() + kSlotAt, static_cast<std::uint16_t>(head.slot));
  store_big_endian(bytes.data() + 30, static_cast<std::uint16_t>(shape.exponents));
  store_big_endian(bytes.data() + 32, static_cast<std::uint16_t>(shape.elements));
  store_big_endian(bytes.data() + kSharedAt, static_cast<std::uint16_t>(head.shared ? 1 : 0));
  const std::size_t elements_at = kHeaderBytes + padded(shape.exponents);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(kHeaderBytes + shape.exponents),
            bytes.begin() + static_cast<std::ptrdiff_t>(elements_at), std::byte{0});
  return {bytes.subspan(kHeaderBytes, shape.exponents),
          bytes.subspan(elements_at, head.shared ? 0 : 4 * shape.elements)};
}

GmacNonce nonce_of(std::span<const std::byte> bytes) {
  GmacNonce nonce{};
  nonce[0] = bytes[0];
  nonce[1] = bytes[kSharedAt + 1];
  std::memcpy(nonce.data() + 2, bytes.data() + kSlotAt, 2);
  std::memcpy(nonce.data() + 4, bytes.data() + kSequenceAt, 8);
  return nonce;
}

int largest_packet_elements(std::size_t payload) {
  int elements = 0;
  while (packet_size(full_shape(Mode::kExtended, elements + kBlockElements)) <= payload &&
         elements + kBlockElements <= 0xffff) {
    elements += kBlockElements;
  }
  return elements;
}

}  // namespace weft::aggregation::extended
