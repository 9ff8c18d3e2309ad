// The tag of extended packets: SipHash-2-4 in four lanes side by side, because one alone takes longer than all else.
//
// The message, padded with zeros to a multiple of 32 bytes, is dealt out word by word to four lanes. Each lane is
// SipHash's state under an inner key (the key with every byte xor 0x36), begun with its number as first word and
// finished as SipHash is, without a length. The tag is SipHash-2-4 under the key itself of the four lanes' words and
// the message's length, all little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/aggregation/job.h"

namespace weft::aggregation {

[[nodiscard]] std::uint64_t packet_tag(const PacketKey& key, std::span<const std::byte> message);

}  // namespace weft::aggregation
