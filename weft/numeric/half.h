// Float16 and BFloat16: storage formats that convert to float for arithmetic, rounding to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace weft::numeric {

struct BFloat16 {
  std::uint16_t bits;

  [[nodiscard]] float to_float() const noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  [[nodiscard]] static BFloat16 from_float(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((word >> 16) | 0x40U)};  // NaN
    return {static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16)};
  }
};

struct Float16 {
  std::uint16_t bits;

  [[nodiscard]] float to_float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
    // Interpreting the bits as a float with a tiny exponent and scaling by 2^112 also handles subnormals.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
  }
  [[nodiscard]] static Float16 from_float(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000U);
    const std::uint32_t magnitude = word & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U)};   // NaN
    if (magnitude >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // rounds to infinity
    if (magnitude < 0x38800000U) {  // subnormal: adding 0.5 lets the float unit round at the right bit
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
    }
    const std::uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
  }
};

}  // namespace weft::numeric
