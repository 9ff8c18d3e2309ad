#include "weft/aggregation/transport/udp_frame.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::aggregation {
namespace {

const FrameEnd kFrom{{2, 0, 0, 0, 0, 0x0a}, {0x0a4d000a, 4000}};
const FrameEnd kTo{{2, 0, 0, 0, 0, 1}, {0x0a4d0001, 48864}};

std::vector<std::byte> frame_of(const std::vector<std::byte>& payload) {
  std::vector<std::byte> frame(kFrameHeaderBytes);
  write_frame_header(std::span<std::byte, kFrameHeaderBytes>(frame.data(), kFrameHeaderBytes), kFrom, kTo,
                     payload.size());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}
std::vector<std::byte> some_frame() { return frame_of({std::byte{1}, std::byte{2}, std::byte{3}}); }

// Written by hand from RFC 894, 791 and 768. The checksum is 0xffff - (4500 + 001f + 4000 + 4011 + 0a4d + 000a + 0a4d +
// 0001, with carries), which is 0x262a.
TEST(UdpFrame, MatchesTheGoldenFrame) {
  const std::vector<int> expected{2,    0,    0,    0,    0, 1,  2,    0, 0,  0,  0,    0x0a, 8,  0,  // Ethernet
                                  0x45, 0,    0,    31,   0, 0,  0x40, 0, 64, 17, 0x26, 0x2a, 10, 77,
                                  0,    10,   10,   77,   0, 1,            // IPv4
                                  0x0f, 0xa0, 0xbe, 0xe0, 0, 11, 0,    0,  // UDP
                                  1,    2,    3};
  const auto frame = some_frame();
  ASSERT_EQ(frame.size(), expected.size());
  for (std::size_t i = 0; i < frame.size(); ++i) EXPECT_EQ(std::to_integer<int>(frame[i]), expected[i]) << i;
}

TEST(UdpFrame, IsReadBack) {
  auto frame = some_frame();
  frame.resize(64);  // Ethernet pads short frames
  const auto datagram = read_frame(frame);
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->from, kFrom.address);
  EXPECT_EQ(datagram->to, kTo.address);
  EXPECT_EQ(datagram->from_mac, kFrom.mac);
  EXPECT_EQ(datagram->payload.size(), 3U);
  EXPECT_EQ(datagram->payload[2], std::byte{3});
  EXPECT_TRUE(read_frame(frame_of({})));
}

TEST(UdpFrame, SkipsIpOptions) {
  auto frame = some_frame();
  frame.insert(frame.begin() + 34, 4, std::byte{1});
  frame[14] = std::byte{0x46};
  frame[17] = std::byte{35};
  const auto datagram = read_frame(frame);
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->from, kFrom.address);
  EXPECT_EQ(datagram->payload.size(), 3U);
}

TEST(UdpFrame, RejectsOtherFrames) {
  const auto with = [](std::size_t at, int value) {
    auto frame = some_frame();
    frame[at] = static_cast<std::byte>(value);
    return read_frame(frame).has_value();
  };
  EXPECT_FALSE(with(12, 0x86));  // not IPv4
  EXPECT_FALSE(with(14, 0x65));  // version 6
  EXPECT_FALSE(with(14, 0x44));  // header too short
  EXPECT_FALSE(with(14, 0x4f));  // header longer than the packet
  EXPECT_FALSE(with(17, 32));    // longer than the frame
  EXPECT_FALSE(with(17, 27));    // shorter than the UDP header
  EXPECT_FALSE(with(20, 0x20));  // first fragment
  EXPECT_FALSE(with(21, 1));     // later fragment
  EXPECT_FALSE(with(23, 6));     // TCP
  EXPECT_FALSE(with(39, 12));    // UDP length exceeds the packet
  EXPECT_FALSE(with(39, 7));     // UDP length below its header
  for (std::size_t size = 0; size < some_frame().size(); ++size) {
    const auto frame = some_frame();
    EXPECT_FALSE(read_frame(std::span(frame).first(size))) << size;
  }
}

}  // namespace
}  // namespace weft::aggregation
