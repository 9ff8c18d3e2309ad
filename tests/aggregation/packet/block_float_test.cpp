// Block floating point: the error bound against exact sums, and all values that SwitchML's quantiser corrupts.
#include "weft/aggregation/packet/block_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "weft/aggregation/packet/elements.h"

namespace weft::aggregation {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Block = std::vector<float>;
using Wide = __float128;  // 113 bits: exact for all sums here

// Result of exchanging exponents through a switch.
BlockScale agree(const std::vector<Block>& blocks) {
  RangeBytes bytes{-128, -128};
  for (const Block& block : blocks) {
    const RangeBytes mine = encode(range_of(block));
    bytes = {std::max(bytes.largest, mine.largest), std::max(bytes.smallest, mine.smallest)};
  }
  return {decode_range(bytes), headroom_bits(static_cast<int>(blocks.size()))};
}

struct Summed {
  Block values;
  int rounds;
  double quantum;  // of the last round
};

// Sums like workers and a switch; fails if an integer sum exceeds 32 bits.
Summed sum(const std::vector<Block>& blocks) {
  const BlockScale scale = agree(blocks);
  const std::size_t size = blocks[0].size();
  std::vector<double> values(size);
  Block fast(size);
  for (int round = 0; round < scale.rounds(); ++round) {
    std::vector<std::int64_t> exact(size);
    for (const Block& block : blocks) {
      std::vector<std::byte> packet(4 * size);
      scale.quantise(block, round, packet);
      std::vector<std::int32_t> integers(size);
      set_elements(integers, packet);
      for (std::size_t i = 0; i < size; ++i) exact[i] += integers[i];
    }
    std::vector<std::int32_t> sums(size);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_LE(std::abs(exact[i]), std::numeric_limits<std::int32_t>::max());
      sums[i] = static_cast<std::int32_t>(exact[i]);
    }
    std::vector<std::byte> packet(4 * size);
    write_elements(packet, sums);
    scale.accumulate(packet, round, values);
    if (scale.rounds() == 1) scale.dequantise(packet, fast);
  }
  Block result(values.begin(), values.end());
  if (scale.rounds() == 1) {
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_TRUE(fast[i] == result[i] || (std::isnan(fast[i]) && std::isnan(result[i])))
          << "dequantise() and accumulate() agree";
    }
  }
  return {result, scale.rounds(), std::ldexp(1.0, scale.quantum_exponent(scale.rounds() - 1))};
}

double half_ulp(float x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(0.5, std::max(exponent - 24, -149));
}

void expect_within_bound(const std::vector<Block>& blocks) {
  const Summed result = sum(blocks);
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    Wide exact = 0;
    for (const Block& block : blocks) exact += block[i];
    const Wide bound = static_cast<Wide>(blocks.size()) / 2 * result.quantum + half_ulp(result.values[i]);
    const Wide error = exact > result.values[i] ? exact - result.values[i] : result.values[i] - exact;
    ASSERT_LE(static_cast<double>(error), static_cast<double>(bound)) << static_cast<double>(exact);
  }
}

Block filled(float value) { return Block(64, value); }

// ---- the six corruptions of SwitchML's quantiser -------------------------------------------------------------------

class Corruptions : public testing::TestWithParam<int> {
 protected:
  // Worker 0 has `value` at element 3; all other elements are `others`.
  [[nodiscard]] Summed with(float value, float others) const {
    std::vector<Block> blocks(static_cast<std::size_t>(GetParam()), filled(others));
    blocks[0][3] = value;
    return sum(blocks);
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, Corruptions, testing::Values(1, 2, 3, 8, 33));

TEST_P(Corruptions, NanIsPreserved) {
  const Summed result = with(kNan, 1);
  EXPECT_TRUE(std::isnan(result.values[3]));
  EXPECT_TRUE(std::isnan(result.values[4])) << "the block contains NaN or Inf";
}
TEST_P(Corruptions, InfIsPreserved) {
  EXPECT_EQ(with(kInf, 1).values[3], kInf);
  EXPECT_EQ(with(-kInf, 1).values[3], -kInf);
  EXPECT_FALSE(std::isfinite(with(kInf, 1).values[4]));
}
TEST_P(Corruptions, LargeValuesArePreserved) {
  for (const float large : {2e38F, 1e38F, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(with(large, 0).values[3], large);
    EXPECT_EQ(with(-large, 0).values[3], -large);
    EXPECT_EQ(with(large, 0).values[4], 0);
  }
}
TEST_P(Corruptions, TinyValuesArePreserved) {
  for (const float tiny : {1e-30F, 1e-38F, 1e-45F, std::numeric_limits<float>::min()}) {
    EXPECT_EQ(with(tiny, 0).values[3], tiny);
    EXPECT_NEAR(with(tiny, tiny).values[5], GetParam() * tiny, GetParam() * tiny * 1e-6);
  }
}
TEST_P(Corruptions, TinyValuesNextToLargeOnesArePreserved) {
  const Summed result = with(1e-10F, 1);
  const double expected = 1e-10F + static_cast<double>(GetParam() - 1);
  EXPECT_NEAR(result.values[3], expected, half_ulp(static_cast<float>(expected)) + 1e-12);
  std::vector<Block> blocks(static_cast<std::size_t>(GetParam()), filled(1));
  for (Block& block : blocks) block[3] = 1e-10F;
  const Summed together = sum(blocks);
  EXPECT_NEAR(together.values[3], GetParam() * 1e-10, GetParam() * 1e-10 / 256);
  EXPECT_EQ(together.values[4], static_cast<float>(GetParam()));
}
TEST_P(Corruptions, OneBlockCanSpanTheWholeExponentRange) {
  std::vector<Block> blocks(static_cast<std::size_t>(GetParam()), filled(0));
  for (int i = 0; i < 64; ++i) blocks[0][static_cast<std::size_t>(i)] = std::ldexp(1.25F, -126 + 4 * i);
  const Summed result = sum(blocks);
  EXPECT_GT(result.rounds, 5);
  EXPECT_EQ(result.values, blocks[0]);
}

// ---- the bound ------------------------------------------------------------------------------------------------------

TEST(Bound, HoldsForRandomBlocks) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto workers = 1 + random() % 33;
    const int center = static_cast<int>(random() % 240) - 140;
    const int spread = static_cast<int>(random() % 60);
    std::vector<Block> blocks(workers, Block(1 + random() % 70));
    for (Block& block : blocks) {
      for (float& x : block) {
        const int exponent = std::min(center + static_cast<int>(random() % (spread + 1)), 120);
        x = std::ldexp(static_cast<float>(random() >> 40) * 0x1p-24F * (random() % 2 == 0 ? 1.0F : -1.0F), exponent);
        if (random() % 5 == 0) x = 0;
      }
    }
    expect_within_bound(blocks);
    if (HasFatalFailure()) return;
  }
}

TEST(Bound, IsReachedByHalves) {
  // All elements are within 22 bits of the largest, because a second round would hide the error.
  std::vector<Block> blocks(2, Block{1, std::ldexp(1.0F, -21) * (1 + std::ldexp(1.0F, -10))});
  const Summed result = sum(blocks);
  EXPECT_EQ(result.rounds, 1);
  expect_within_bound(blocks);
}

TEST(Bound, EveryElementKeepsBfloat16sPrecision) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<Block> blocks(1 + random() % 8, filled(0));
    for (float& x : blocks[0])
      x = std::ldexp(1.0F + static_cast<float>(random() >> 40) * 0x1p-24F, static_cast<int>(random() % 250) - 149);
    const Summed result = sum(blocks);
    for (std::size_t i = 0; i < 64; ++i)
      EXPECT_NEAR(result.values[i], blocks[0][i], std::abs(blocks[0][i]) / 512 + 0x1p-149);
  }
}

TEST(Overflow, DoesNotHappenInTheIntegers) {
  for (int workers = 1; workers <= 1023; workers += workers < 140 ? 1 : 97) {
    const float most = std::nextafter(2.0F, 0.0F);
    expect_within_bound(std::vector<Block>(static_cast<std::size_t>(workers), Block{most, -most, most / 3}));
  }
  expect_within_bound(std::vector<Block>(128, Block{std::nextafter(2.0F, 0.0F)}));
  expect_within_bound(std::vector<Block>(256, Block{std::nextafter(2.0F, 0.0F)}));
  expect_within_bound(std::vector<Block>(1023, Block{std::nextafter(2.0F, 0.0F), 1e-20F}));
}

TEST(Overflow, OfTheSumGivesInf) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(sum({filled(most), filled(most)}).values[0], kInf);
  EXPECT_EQ(sum({filled(-most), filled(-most), filled(-most)}).values[0], -kInf);
  EXPECT_EQ(sum({filled(most), filled(-most)}).values[0], 0);
}

TEST(NonFinite, FollowsIeeeSums) {
  std::vector<Block> blocks(3, filled(1));
  blocks[0][0] = kInf;
  blocks[1][0] = -kInf;  // Inf - Inf
  blocks[0][1] = kInf;
  blocks[2][1] = kInf;
  blocks[1][2] = -kInf;
  blocks[1][3] = kNan;
  blocks[2][3] = kInf;
  const Block result = sum(blocks).values;
  EXPECT_TRUE(std::isnan(result[0]));
  EXPECT_EQ(result[1], kInf);
  EXPECT_EQ(result[2], -kInf);
  EXPECT_TRUE(std::isnan(result[3]));
  const Block crowd = sum(std::vector<Block>(1023, Block{kInf, -kInf, kNan})).values;
  EXPECT_EQ(crowd[0], kInf);
  EXPECT_EQ(crowd[1], -kInf);
  EXPECT_TRUE(std::isnan(crowd[2]));
}

TEST(Range, IsDefinedForZerosSubnormalsAndEmptyBlocks) {
  EXPECT_EQ(range_of(Block{}), (BlockRange{0, 255}));
  EXPECT_EQ(range_of(Block{0, -0.0F}), (BlockRange{0, 255}));
  EXPECT_EQ(range_of(Block{0, 1e-45F}), (BlockRange{0, 0}));
  EXPECT_EQ(range_of(Block{-4, 0, 1}), (BlockRange{129, 127}));
  EXPECT_EQ(range_of(Block{kNan, 1}), (BlockRange{255, 127}));
  for (int largest = 0; largest < 256; ++largest) {
    EXPECT_EQ(decode_range(encode({largest, 255 - largest})), (BlockRange{largest, 255 - largest}));
  }
  EXPECT_EQ(sum({filled(0), filled(-0.0F)}).values[0], 0);
}

}  // namespace
}  // namespace weft::aggregation
