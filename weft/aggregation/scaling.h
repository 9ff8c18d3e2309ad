// The loops over floats that every packet goes through, fast where the processor has AVX2.
#pragma once

#include <cstdint>
#include <span>

#include "weft/aggregation/block_float.h"

namespace weft::aggregation::scaling {

[[nodiscard]] BlockRange range_of(std::span<const float> block);

// Whether 2^exponent is a normal float, so that multiplying by it only shifts the exponent.
[[nodiscard]] constexpr bool fits_float(int exponent) { return exponent >= -126 && exponent <= 127; }

// Nearest integers of block * 2^exponent, ties to even; all below 2^31. fits_float(exponent).
void quantise(std::span<const float> block, int exponent, std::span<std::int32_t> out);
// Nearest floats of sums * 2^exponent, ties to even; too large ones become Inf. fits_float(exponent).
void dequantise(std::span<const std::int32_t> sums, int exponent, std::span<float> out);

}  // namespace weft::aggregation::scaling
