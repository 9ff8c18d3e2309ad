// Compares float16 and bfloat16 with tables of all their values, decoded with ldexp and rounded by search in double.
#include "weft/numeric/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace weft::numeric {
namespace {

struct Float16Format {
  using Type = Float16;
  static constexpr int kFraction = 10;
  static constexpr int kBias = 15;
};
struct BFloat16Format {
  using Type = BFloat16;
  static constexpr int kFraction = 7;
  static constexpr int kBias = 127;
};

template <class Format>
class Half : public testing::Test {
 public:
  using Type = typename Format::Type;
  static constexpr unsigned kInfinity = static_cast<unsigned>(2 * Format::kBias + 1) << Format::kFraction;

  // The value of a finite non-negative pattern.
  static double decode(unsigned bits) {
    const unsigned fraction = bits & ((1U << Format::kFraction) - 1);
    const int exponent = static_cast<int>(bits >> Format::kFraction);
    const double significand = std::ldexp(fraction, -Format::kFraction) + (exponent > 0 ? 1 : 0);
    return std::ldexp(significand, std::max(exponent, 1) - Format::kBias);
  }

  static const std::vector<double>& finite_values() {
    static const auto values = [] {
      std::vector<double> all(kInfinity);
      for (unsigned bits = 0; bits < kInfinity; ++bits) all[bits] = decode(bits);
      return all;
    }();
    return values;
  }

  // Nearest pattern to a finite value, ties to even, and to infinity from half a step beyond the largest.
  static unsigned round(double value) {
    const auto& table = finite_values();
    const double magnitude = std::fabs(value);
    const unsigned sign = std::signbit(value) ? 0x8000U : 0;
    const auto above = static_cast<unsigned>(std::lower_bound(table.begin(), table.end(), magnitude) - table.begin());
    if (above < kInfinity && table[above] == magnitude) return sign | above;
    const unsigned below = above - 1;
    const double upper = above < kInfinity ? table[above] : 2 * table[below] - table[below - 1];
    const double to_below = magnitude - table[below];
    const double to_above = upper - magnitude;
    if (to_below == to_above) return sign | (below % 2 == 0 ? below : above);
    return sign | (to_below < to_above ? below : above);
  }

  static void expect_rounds_right(float value) {
    ASSERT_EQ(Type::from_float(value).bits, round(value)) << std::hexfloat << value;
    ASSERT_EQ(Type::from_float(-value).bits, round(-value)) << std::hexfloat << -value;
  }
};

using Formats = testing::Types<Float16Format, BFloat16Format>;
TYPED_TEST_SUITE(Half, Formats);

TYPED_TEST(Half, All65536PatternsMeanWhatTheFormatSays) {
  using Type = typename TypeParam::Type;
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const float value = Type{static_cast<std::uint16_t>(bits)}.to_float();
    const unsigned magnitude = bits & 0x7fffU;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000U) << bits;
    if (magnitude > this->kInfinity) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if (magnitude == this->kInfinity) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(std::fabs(static_cast<double>(value)), this->decode(magnitude)) << bits;
    }
  }
}

TYPED_TEST(Half, All65536PatternsSurviveTheRoundTrip) {
  using Type = typename TypeParam::Type;
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const auto back = Type::from_float(Type{static_cast<std::uint16_t>(bits)}.to_float());
    if ((bits & 0x7fffU) > this->kInfinity) {
      ASSERT_GT(back.bits & 0x7fffU, this->kInfinity) << "NaN " << bits << " became a number";
      ASSERT_EQ(back.bits & 0x8000U, bits & 0x8000U);
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

TYPED_TEST(Half, RoundsToNearestAroundEveryMidpoint) {
  const auto& table = this->finite_values();
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    const auto middle = static_cast<float>((table[i] + table[i + 1]) / 2);  // exact: one bit more than the format
    for (const float value : {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, INFINITY)}) {
      this->expect_rounds_right(value);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Half, RoundsFloatsOfEveryMagnitude) {
  std::uint32_t state = 12345;
  for (int i = 0; i < 400'000; ++i) {
    state = state * 1664525U + 1013904223U;
    const auto value = std::bit_cast<float>(state & 0x7fffffffU);
    if (!std::isfinite(value)) continue;
    this->expect_rounds_right(value);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Half, OverflowsToInfinityHalfAStepBeyondTheLargest) {
  using Type = typename TypeParam::Type;
  const auto& table = this->finite_values();
  const double largest = table.back();
  const auto edge = static_cast<float>(largest + (largest - table[table.size() - 2]) / 2);
  EXPECT_EQ(Type::from_float(std::nextafter(edge, 0.0F)).bits, this->kInfinity - 1);
  EXPECT_EQ(Type::from_float(edge).bits, this->kInfinity);
  EXPECT_EQ(Type::from_float(-edge).bits, this->kInfinity | 0x8000U);
  EXPECT_EQ(Type::from_float(std::numeric_limits<float>::max()).bits, this->kInfinity);
  EXPECT_EQ(Type::from_float(INFINITY).bits, this->kInfinity);
  EXPECT_EQ(Type::from_float(-INFINITY).bits, this->kInfinity | 0x8000U);
}

TYPED_TEST(Half, KeepsNaNAndSignedZero) {
  using Type = typename TypeParam::Type;
  // The only fraction bit of the last one does not exist in the narrower format.
  for (const std::uint32_t bits : {0x7fc00000U, 0x7fffffffU, 0x7f800001U}) {
    EXPECT_TRUE(std::isnan(Type::from_float(std::bit_cast<float>(bits)).to_float())) << bits;
    EXPECT_TRUE(std::isnan(Type::from_float(std::bit_cast<float>(bits | 0x80000000U)).to_float())) << bits;
  }
  EXPECT_EQ(Type::from_float(0.0F).bits, 0);
  EXPECT_EQ(Type::from_float(-0.0F).bits, 0x8000U);
}

}  // namespace
}  // namespace weft::numeric
