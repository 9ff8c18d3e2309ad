// Ethernet frames that carry one UDP datagram over IPv4, for transports that bypass the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/aggregation/address.h"

namespace weft::aggregation {

using MacAddress = std::array<std::uint8_t, 6>;

// One end of a frame's way.
struct FrameEnd {
  MacAddress mac{};
  Address address;
};

inline constexpr std::size_t kFrameHeaderBytes = 14 + 20 + 8;

// Writes the headers in front of `payload` bytes, which follow them. Without UDP checksum, as SwitchML's switches send.
void write_frame_header(std::span<std::byte, kFrameHeaderBytes> header, const FrameEnd& from, const FrameEnd& to,
                        std::size_t payload);

struct Datagram {
  MacAddress from_mac{};
  Address from;
  Address to;
  std::span<const std::byte> payload;
};

// The datagram in a frame; nothing for any other frame: other protocols, fragments, lengths that do not fit. Checksums
// are left to whoever tells packets apart by tag: between virtual devices they are not there.
[[nodiscard]] std::optional<Datagram> read_frame(std::span<const std::byte> frame);

}  // namespace weft::aggregation
