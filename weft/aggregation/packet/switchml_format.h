// SwitchML's UDP payload: 8 bytes of header, 2 exponents, 64 or 256 big-endian int32.
//
//   byte 0     message type 1 (4 bits) | unused (1 bit) | size (3 bits): 1 for 64 elements, 3 for 256
//   byte 1     job number: one allreduce, modulo 256
//   bytes 2-5  tsi, chosen by the worker and returned by the switch
//   bytes 6-7  pool index: bit 15 is the shadow set, the rest the slot
//   bytes 8-9  exponents e0, e1; the switch returns the largest of each
#pragma once

#include "weft/aggregation/packet/packet.h"

namespace weft::aggregation::switchml {

inline constexpr std::size_t kHeaderBytes = 8;
inline constexpr std::size_t kExponents = 2;

[[nodiscard]] bool is_packet_elements(std::size_t elements);  // 64 or 256
[[nodiscard]] std::size_t packet_size(const Shape& shape);
[[nodiscard]] std::optional<Packet> decode(std::span<const std::byte> bytes);
// A packet without elements has the same length as any other; its elements are zero.
[[nodiscard]] Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape);

}  // namespace weft::aggregation::switchml
