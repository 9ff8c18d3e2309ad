#include "weft/aggregation/packet/scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "weft/aggregation/packet/byte_order.h"
#include "weft/numeric/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::aggregation::scaling {
namespace {

float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23); }

// Magnitudes of floats have the same order as their bits as integers. Subtracting 1 turns zero into the largest
// unsigned integer, so that it does not count as the smallest.
[[gnu::always_inline]] inline BlockRange range_loop(const float* block, std::size_t count) {
  std::uint32_t largest = 0;
  std::uint32_t smallest = 0xffffffffU;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(block[i]) & 0x7fffffffU;
    largest = std::max(largest, magnitude);
    smallest = std::min(smallest, magnitude - 1);
  }
  const std::uint32_t least = smallest + 1;  // 0 if all elements are zero
  return {static_cast<int>(largest >> 23), least == 0 ? 255 : static_cast<int>(least >> 23)};
}

WEFT_AVX2 BlockRange range_avx2(const float* block, std::size_t count) { return range_loop(block, count); }

void quantise_loop(const float* block, float scale, std::byte* packet, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store_element(packet, i, static_cast<std::int32_t>(std::lrintf(block[i] * scale)));
  }
}

#if defined(__x86_64__)
// Compilers do not vectorise lrintf: it returns a long.
WEFT_AVX2 void quantise_avx2(const float* block, float scale, std::byte* packet, std::size_t count) {
  const __m256 factor = _mm256_set1_ps(scale);
  const __m256i big_endian =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i integers = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(block + i), factor));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(packet + 4 * i), _mm256_shuffle_epi8(integers, big_endian));
  }
  quantise_loop(block + i, scale, packet + 4 * i, count - i);
}
#else
void quantise_avx2(const float* b, float s, std::byte* p, std::size_t n) { quantise_loop(b, s, p, n); }
#endif

[[gnu::always_inline]] inline void dequantise_loop(const std::byte* packet, float quantum, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(load_element(packet, i)) * quantum;
}
WEFT_AVX2 void dequantise_avx2(const std::byte* p, float q, float* o, std::size_t n) { dequantise_loop(p, q, o, n); }

}  // namespace

BlockRange range_of(std::span<const float> block) {
  return numeric::has_avx2() ? range_avx2(block.data(), block.size()) : range_loop(block.data(), block.size());
}

void quantise(std::span<const float> block, int exponent, std::span<std::byte> packet) {
  const float scale = power_of_two(exponent);
  numeric::has_avx2() ? quantise_avx2(block.data(), scale, packet.data(), block.size())
                      : quantise_loop(block.data(), scale, packet.data(), block.size());
}

void dequantise(std::span<const std::byte> packet, int exponent, std::span<float> out) {
  const float quantum = power_of_two(exponent);
  numeric::has_avx2() ? dequantise_avx2(packet.data(), quantum, out.data(), out.size())
                      : dequantise_loop(packet.data(), quantum, out.data(), out.size());
}

}  // namespace weft::aggregation::scaling
