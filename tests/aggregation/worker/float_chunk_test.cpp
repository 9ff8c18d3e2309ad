// Chunks of floats: which packets carry which rounds, and the results.
#include "weft/aggregation/worker/float_chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "weft/aggregation/packet/elements.h"

namespace weft::aggregation {
namespace {

constexpr std::size_t kBlock = 64;

// Ones, and 1e-10 in the given blocks, which therefore take two rounds.
std::vector<float> with_wide_blocks(std::size_t elements, const std::set<std::size_t>& blocks) {
  std::vector<float> values(elements, 1);
  for (const std::size_t block : blocks) values[block * kBlock + 3] = 1e-10F;
  return values;
}

// A chunk that two workers with the same values have agreed on.
template <class Number>
struct Agreed {
  Agreed(const std::vector<Number>& values, std::size_t packet_blocks, int divisor = 1, std::size_t block = kBlock)
      : buffer(block), chunk({block, packet_blocks, headroom_bits(2), divisor}) {
    std::vector<std::byte> exponents(2 * ((values.size() + block - 1) / block));
    write_ranges(std::span(values), std::span(exponents), buffer);
    chunk.begin(exponents, values.size());
  }
  // Sends the packets, adds both workers' integers and writes the results over the inputs.
  void sum(std::vector<Number>& values) {
    for (int packet = 0; packet < chunk.packets(); ++packet) {
      std::vector<std::byte> bytes(4 * chunk.elements(packet));
      chunk.quantise(std::span<const Number>(values), packet, bytes, buffer);
      std::vector<std::int32_t> integers(chunk.elements(packet));
      set_elements(integers, bytes);
      add_elements(integers, bytes);
      write_elements(bytes, integers);
      chunk.accept(bytes, packet, std::span(values), buffer);
    }
  }

  BlockBuffer buffer;
  FloatChunk<Number> chunk;
};

TEST(FloatChunk, UsuallyTakesOnePacket) {
  const Agreed<float> agreed(with_wide_blocks(5 * kBlock, {}), 5);
  EXPECT_EQ(agreed.chunk.packets(), 1);
  EXPECT_EQ(agreed.chunk.elements(0), 5 * kBlock);
}

TEST(FloatChunk, AFurtherPacketCarriesOnlyTheBlocksThatNeedIt) {
  std::vector<float> values = with_wide_blocks(5 * kBlock - 7, {1, 4});
  Agreed<float> agreed(values, 5);
  ASSERT_EQ(agreed.chunk.packets(), 2);
  EXPECT_EQ(agreed.chunk.elements(0), 5 * kBlock - 7);
  EXPECT_EQ(agreed.chunk.elements(1), 2 * kBlock - 7);  // the last block is shorter
  agreed.sum(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool tiny = i == kBlock + 3 || i == 4 * kBlock + 3;
    EXPECT_NEAR(values[i], tiny ? 2e-10F : 2.0F, tiny ? 1e-12F : 0.0F) << i;
  }
}

TEST(FloatChunk, TheFirstPacketCarriesFurtherRoundsIfItHasRoom) {
  std::vector<float> values = with_wide_blocks(6 * kBlock, {0, 2, 5});
  Agreed<float> agreed(values, 8);
  ASSERT_EQ(agreed.chunk.packets(), 2);
  EXPECT_EQ(agreed.chunk.elements(0), 8 * kBlock);
  EXPECT_EQ(agreed.chunk.elements(1), kBlock);
  agreed.sum(values);
  for (const std::size_t block : {0U, 2U, 5U}) EXPECT_NEAR(values[block * kBlock + 3], 2e-10F, 1e-12F);
  EXPECT_EQ(values[4 * kBlock + 3], 2);
}

// SwitchML's packets hold one block, which may be incomplete.
TEST(FloatChunk, EachRoundOfASwitchMlPacketTakesOnePacket) {
  std::vector<float> values(100, 1);
  values[7] = 1e-30F;
  const Agreed<float> agreed(values, 1, 1, 256);
  ASSERT_GT(agreed.chunk.packets(), 2);
  for (int packet = 0; packet < agreed.chunk.packets(); ++packet) EXPECT_EQ(agreed.chunk.elements(packet), 100U);
}

TEST(FloatChunk, AMeanIsDividedBeforeItIsRounded) {
  std::vector<float> values(2 * kBlock, 3e38F);
  values[kBlock] = 1e-10F;  // the second block takes several rounds
  Agreed<float> agreed(values, 2, 2);
  agreed.sum(values);
  EXPECT_EQ(values[0], 3e38F);
  EXPECT_EQ(values[kBlock + 1], 3e38F);
  EXPECT_NEAR(values[kBlock], 1e-10F, 1e-12F);
}

template <class Number>
class Halves : public testing::Test {};
using HalfTypes = testing::Types<numeric::Float16, numeric::BFloat16>;
TYPED_TEST_SUITE(Halves, HalfTypes);

TYPED_TEST(Halves, AreSummedInPlace) {
  std::vector<TypeParam> values(3 * kBlock, TypeParam::from_float(1.5F));
  values[kBlock + 1] = {1};  // the smallest subnormal
  Agreed<TypeParam> agreed(values, 3);
  agreed.sum(values);
  EXPECT_EQ(values[0].to_float(), 3.0F);
  EXPECT_EQ(values[kBlock].to_float(), 3.0F);
  EXPECT_EQ(values[kBlock + 1].bits, 2);
  EXPECT_EQ(values.back().to_float(), 3.0F);
}

}  // namespace
}  // namespace weft::aggregation
