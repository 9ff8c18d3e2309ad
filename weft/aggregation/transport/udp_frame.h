// Ethernet frames that carry one UDP datagram over IPv4, for transports that bypass the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/aggregation/packet/address.h"

namespace weft::aggregation {

using MacAddress = std::array<std::uint8_t, 6>;

// Source or destination of a frame.
struct FrameEnd {
  MacAddress mac{};
  Address address;
};

inline constexpr std::size_t kFrameHeaderBytes = 14 + 20 + 8;

// Writes the headers of a frame with `payload` bytes. The UDP checksum is 0, as in SwitchML's packets.
void write_frame_header(std::span<std::byte, kFrameHeaderBytes> header, const FrameEnd& from, const FrameEnd& to,
                        std::size_t payload);

struct Datagram {
  MacAddress from_mac{};
  Address from;
  Address to;
  std::span<const std::byte> payload;
};

// Returns the datagram in a frame, or nullopt for other protocols, fragments and invalid lengths. Ignores checksums,
// because virtual devices do not fill them in.
[[nodiscard]] std::optional<Datagram> read_frame(std::span<const std::byte> frame);

}  // namespace weft::aggregation
