#include "weft/aggregation/transport/udp_frame.h"

#include <cstring>

#include "weft/aggregation/packet/byte_order.h"

namespace weft::aggregation {
namespace {

constexpr std::size_t kMacBytes = 6;
constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kLeastIpBytes = 20;
constexpr std::size_t kUdpBytes = 8;
constexpr std::uint16_t kIpv4 = 0x0800;
constexpr std::uint8_t kUdp = 17;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFragmentBits = 0x3fff;  // the flag "more fragments", and the fragment offset
constexpr std::uint8_t kHops = 64;

// The ones' complement of the ones' complement sum of 16-bit words; the checksum's own field is still zero.
std::uint16_t ip_checksum(const std::byte* header) {
  std::uint32_t sum = 0;
  for (std::size_t at = 0; at < kLeastIpBytes; at += 2) sum += load_big_endian<std::uint16_t>(header + at);
  while ((sum >> 16) != 0) sum = (sum & 0xffffU) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

void write_ip(std::byte* ip, const Address& from, const Address& to, std::size_t payload) {
  std::memset(ip, 0, kLeastIpBytes);
  ip[0] = std::byte{0x45};  // version 4, five words
  store_big_endian(ip + 2, static_cast<std::uint16_t>(kLeastIpBytes + kUdpBytes + payload));
  store_big_endian(ip + 6, kDontFragment);
  ip[8] = std::byte{kHops};
  ip[9] = std::byte{kUdp};
  store_big_endian(ip + 12, from.ipv4);
  store_big_endian(ip + 16, to.ipv4);
  store_big_endian(ip + 10, ip_checksum(ip));
}

}  // namespace

void write_frame_header(std::span<std::byte, kFrameHeaderBytes> header, const FrameEnd& from, const FrameEnd& to,
                        std::size_t payload) {
  std::memcpy(header.data(), to.mac.data(), kMacBytes);
  std::memcpy(header.data() + kMacBytes, from.mac.data(), kMacBytes);
  store_big_endian(header.data() + 2 * kMacBytes, kIpv4);
  write_ip(header.data() + kEthernetBytes, from.address, to.address, payload);
  std::byte* udp = header.data() + kEthernetBytes + kLeastIpBytes;
  store_big_endian(udp, from.address.port);
  store_big_endian(udp + 2, to.address.port);
  store_big_endian(udp + 4, static_cast<std::uint16_t>(kUdpBytes + payload));
  store_big_endian(udp + 6, std::uint16_t{0});
}

std::optional<Datagram> read_frame(std::span<const std::byte> frame) {
  if (frame.size() < kFrameHeaderBytes) return std::nullopt;
  if (load_big_endian<std::uint16_t>(frame.data() + 2 * kMacBytes) != kIpv4) return std::nullopt;
  const auto ip = frame.subspan(kEthernetBytes);
  const std::size_t ip_bytes = 4 * std::to_integer<std::size_t>(ip[0] & std::byte{0x0f});
  const std::size_t total = load_big_endian<std::uint16_t>(ip.data() + 2);
  const bool fragment = (load_big_endian<std::uint16_t>(ip.data() + 6) & kFragmentBits) != 0;
  if ((ip[0] >> 4) != std::byte{4} || ip_bytes < kLeastIpBytes || ip[9] != std::byte{kUdp} || fragment) {
    return std::nullopt;
  }
  // Short frames are padded: the frame may be longer than the packet.
  if (total > ip.size() || total < ip_bytes + kUdpBytes) return std::nullopt;
  const auto udp = ip.subspan(ip_bytes, total - ip_bytes);
  const std::size_t length = load_big_endian<std::uint16_t>(udp.data() + 4);
  if (length < kUdpBytes || length > udp.size()) return std::nullopt;
  Datagram datagram;
  std::memcpy(datagram.from_mac.data(), frame.data() + kMacBytes, kMacBytes);
  datagram.from = {load_big_endian<std::uint32_t>(ip.data() + 12), load_big_endian<std::uint16_t>(udp.data())};
  datagram.to = {load_big_endian<std::uint32_t>(ip.data() + 16), load_big_endian<std::uint16_t>(udp.data() + 2)};
  datagram.payload = udp.subspan(kUdpBytes, length - kUdpBytes);
  return datagram;
}

}  // namespace weft::aggregation
