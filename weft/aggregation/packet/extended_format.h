// weft's own UDP payload: any number of elements up to the MTU, a 64-bit sequence, up to 1023 workers, and a tag.
//
//   byte 0       message type 2 (4 bits) | kind (4 bits)
//   byte 1       version 2
//   bytes 2-3    rank of the sender of a contribution, else 0
//   bytes 4-7    job              bytes 8-15   epoch
//   bytes 16-23  sequence         bytes 24-27  operation
//   bytes 28-29  slot             bytes 30-31  number of exponents
//   bytes 32-33  number of elements            bytes 34-35  1 if the elements are in shared memory, else 0
//   then the exponents, zeros up to a multiple of 4, the elements unless they are shared, and 16 bytes of tag
//   (packet_mac.h) over all of these, including shared elements
#pragma once

#include "weft/aggregation/packet/gmac.h"
#include "weft/aggregation/packet/packet.h"

namespace weft::aggregation::extended {

inline constexpr std::byte kMessageType{2};
inline constexpr std::size_t kHeaderBytes = 36;

[[nodiscard]] std::size_t packet_size(const Shape& shape);
[[nodiscard]] std::optional<Packet> decode(std::span<const std::byte> bytes);
[[nodiscard]] Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape);
// The packet's nonce: byte 0 (which holds the kind), byte 35 (whether the elements are shared), the slot and the
// sequence.
[[nodiscard]] GmacNonce nonce_of(std::span<const std::byte> bytes);
// The largest multiple of kBlockElements whose packet fits into `payload` bytes of UDP payload; 0 if none fits.
[[nodiscard]] int largest_packet_elements(std::size_t payload);

}  // namespace weft::aggregation::extended
