// Loops over the floats of a packet, with AVX2 if available.
#pragma once

#include <cstddef>
#include <span>

#include "weft/aggregation/packet/block_float.h"

namespace weft::aggregation::scaling {

[[nodiscard]] BlockRange range_of(std::span<const float> block);

// Whether 2^exponent is a normal float, so that multiplying by it only shifts the exponent.
[[nodiscard]] constexpr bool fits_float(int exponent) { return exponent >= -126 && exponent <= 127; }

// `packet` holds as many elements (big-endian int32) as the block.
//
// Rounds block * 2^exponent to the nearest integers, ties to even. Requires fits_float(exponent) and results below
// 2^31.
void quantise(std::span<const float> block, int exponent, std::span<std::byte> packet);
// Rounds the sums * 2^exponent to the nearest floats, ties to even; overflow gives Inf. Requires fits_float(exponent).
void dequantise(std::span<const std::byte> packet, int exponent, std::span<float> out);

}  // namespace weft::aggregation::scaling
