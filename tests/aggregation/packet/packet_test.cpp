// Both packet formats against golden vectors written by hand from the definitions.
#include "weft/aggregation/packet/packet.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/aggregation/packet/bytes.h"
#include "weft/aggregation/packet/byte_order.h"
#include "weft/aggregation/packet/extended_format.h"

namespace weft::aggregation {
namespace {

// Type 1, size 1 (64 elements); job 0xa5; tsi 0x01020304; set 1, slot 0x0102; exponents -3 and 127; then 1, -2, 0, ...
const std::string kGolden64 = "11 a5 01020304 8102 fd 7f 00000001 fffffffe";
// Type 1, size 3 (256 elements); job 0; tsi 0xffffffff; set 0, slot 0x1fff; exponents 0 and -128; then INT32_MIN, ...
const std::string kGolden256 = "13 00 ffffffff 1fff 00 80 80000000";

Bytes golden(const std::string& beginning, std::size_t size) {
  Bytes bytes = from_hex(beginning);
  bytes.resize(size);
  return bytes;
}

std::int32_t element(const Packet& packet, std::size_t i) {
  return static_cast<std::int32_t>(load_big_endian<std::uint32_t>(packet.elements.data() + 4 * i));
}

TEST(SwitchMlFormat, ReadsTheSmallGoldenPacket) {
  const Bytes bytes = golden(kGolden64, 266);
  const auto packet = decode(bytes);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->head.mode, Mode::kSwitchMl);
  EXPECT_EQ(packet->head.operation, 0xa5U);
  EXPECT_EQ(packet->head.sequence, 0x01020304U);
  EXPECT_EQ(packet->head.set, 1);
  EXPECT_EQ(packet->head.slot, 0x0102U);
  ASSERT_EQ(packet->exponents.size(), 2U);
  EXPECT_EQ(static_cast<std::int8_t>(packet->exponents[0]), -3);
  EXPECT_EQ(static_cast<std::int8_t>(packet->exponents[1]), 127);
  ASSERT_EQ(packet->element_count(), 64U);
  EXPECT_EQ(element(*packet, 0), 1);
  EXPECT_EQ(element(*packet, 1), -2);
  EXPECT_EQ(element(*packet, 63), 0);
}

TEST(SwitchMlFormat, ReadsTheLargeGoldenPacket) {
  const Bytes bytes = golden(kGolden256, 1034);
  const auto packet = decode(bytes);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->head.sequence, 0xffffffffU);
  EXPECT_EQ(packet->head.set, 0);
  EXPECT_EQ(packet->head.slot, 0x1fffU);
  EXPECT_EQ(static_cast<std::int8_t>(packet->exponents[1]), -128);
  ASSERT_EQ(packet->element_count(), 256U);
  EXPECT_EQ(element(*packet, 0), std::numeric_limits<std::int32_t>::min());
}

TEST(SwitchMlFormat, WritesTheGoldenPackets) {
  for (const auto& [beginning, elements] : {std::pair{kGolden64, 64}, std::pair{kGolden256, 256}}) {
    const Shape shape = full_shape(Mode::kSwitchMl, elements);
    const Bytes expected = golden(beginning, packet_size(Mode::kSwitchMl, shape));
    const auto packet = decode(expected);
    ASSERT_TRUE(packet);
    Bytes written(expected.size(), std::byte{0xee});
    const Body body = write_head(written, packet->head, shape);
    std::copy(packet->exponents.begin(), packet->exponents.end(), body.exponents.begin());
    std::copy(packet->elements.begin(), packet->elements.end(), body.elements.begin());
    EXPECT_EQ(written, expected);
  }
}

TEST(SwitchMlFormat, HasTheSizesOfTheWireFormat) {
  EXPECT_EQ(packet_size(Mode::kSwitchMl, full_shape(Mode::kSwitchMl, 64)), 266U);
  EXPECT_EQ(packet_size(Mode::kSwitchMl, full_shape(Mode::kSwitchMl, 256)), 1034U);
}

TEST(SwitchMlFormat, DropsInvalidTypesAndSizes) {
  for (int first = 0; first < 256; ++first) {
    for (const std::size_t size : {266U, 1034U}) {
      Bytes bytes = golden(kGolden64, size);
      bytes[0] = static_cast<std::byte>(first);
      // The unused bit is ignored.
      const bool valid = (size == 266U && (first & 0xf7) == 0x11) || (size == 1034U && (first & 0xf7) == 0x13);
      EXPECT_EQ(decode(bytes).has_value(), valid) << first << " in " << size << " bytes";
    }
  }
}

TEST(SwitchMlFormat, DropsWrongLengths) {
  for (std::size_t size = 0; size < 1100; ++size) {
    const Bytes small = golden(kGolden64, std::max<std::size_t>(size, 1));
    EXPECT_EQ(decode(std::span(small).first(size)).has_value(), size == 266) << size;
    const Bytes large = golden(kGolden256, std::max<std::size_t>(size, 1));
    EXPECT_EQ(decode(std::span(large).first(size)).has_value(), size == 1034) << size;
  }
}

// Kind 1, version 2; rank 0x0102; job 0x03040506; epoch; sequence; operation; slot 0x1234; 3 exponents, 2 elements.
const std::string kGoldenExtended =
    "21 02 0102 03040506 0708090a0b0c0d0e 8000000000000001 deadbeef 1234 0003 0002 0000 "
    "80 00 7f 00 00000001 80000000";

TEST(ExtendedFormat, ReadsAndWritesTheGoldenPacket) {
  Bytes expected = from_hex(kGoldenExtended);
  expected.resize(expected.size() + kTagBytes, std::byte{0x5a});
  const auto packet = decode(expected);
  ASSERT_TRUE(packet);
  Head head;
  head.kind = Kind::kResult;
  head.rank = 0x0102;
  head.job = 0x03040506;
  head.epoch = 0x0708090a0b0c0d0e;
  head.sequence = 0x8000000000000001;
  head.set = 1;
  head.operation = 0xdeadbeef;
  head.slot = 0x1234;
  EXPECT_EQ(packet->head, head);
  EXPECT_EQ(element(*packet, 1), std::numeric_limits<std::int32_t>::min());

  Bytes written(packet_size(Mode::kExtended, {3, 2}), std::byte{0xee});
  ASSERT_EQ(written.size(), expected.size());
  const Body body = write_head(written, head, {3, 2});
  std::copy(packet->exponents.begin(), packet->exponents.end(), body.exponents.begin());
  std::copy(packet->elements.begin(), packet->elements.end(), body.elements.begin());
  std::fill(written.end() - kTagBytes, written.end(), std::byte{0x5a});
  EXPECT_EQ(written, expected);
}

TEST(ExtendedFormat, DropsWrongLengths) {
  Bytes bytes(packet_size(Mode::kExtended, {6, 130}) + kTagBytes + 1);
  (void)write_head(std::span(bytes).first(packet_size(Mode::kExtended, {6, 130})), Head{}, {6, 130});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode(std::span(bytes).first(size)).has_value(), size == packet_size(Mode::kExtended, {6, 130})) << size;
  }
}

TEST(ExtendedFormat, FillsThePayload) {
  for (const std::size_t payload : {100UL, 311UL, 1472UL, 8972UL, 65507UL}) {
    const int elements = extended::largest_packet_elements(payload);
    const auto size = [](int n) { return packet_size(Mode::kExtended, full_shape(Mode::kExtended, n)); };
    EXPECT_EQ(elements % kBlockElements, 0);
    EXPECT_LE(size(elements), payload);
    EXPECT_GT(size(elements + kBlockElements), payload);
  }
}

TEST(Decode, ViewsOfRandomBytesStayInsideThePacket) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 20'000; ++trial) {
    Bytes bytes(random() % 400);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (!bytes.empty() && trial % 2 == 0) bytes[0] = static_cast<std::byte>(0x20 | (random() % 4));
    if (bytes.size() > 1 && trial % 2 == 0) bytes[1] = std::byte{2};
    const auto packet = decode(bytes);
    if (!packet) continue;
    const auto* end = bytes.data() + bytes.size();
    EXPECT_TRUE(packet->exponents.data() >= bytes.data() && packet->exponents.data() + packet->exponents.size() <= end);
    EXPECT_TRUE(packet->elements.data() >= bytes.data() && packet->elements.data() + packet->elements.size() <= end);
  }
}

}  // namespace
}  // namespace weft::aggregation
