#include "weft/aggregation/packet/elements.h"

#include <algorithm>
#include <cstring>

#include "weft/aggregation/packet/byte_order.h"
#include "weft/numeric/processor.h"

namespace weft::aggregation {
namespace {

// Each loop is compiled twice: with AVX2, the byte swap of eight elements is one instruction.
[[gnu::always_inline]] inline void set_loop(std::int32_t* sum, const std::byte* packet, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = load_element(packet, i);
}
[[gnu::always_inline]] inline void add_loop(std::int32_t* sum, const std::byte* packet, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    // Adds unsigned integers, because signed overflow is undefined behaviour.
    sum[i] =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(sum[i]) + load_big_endian<std::uint32_t>(packet + 4 * i));
  }
}
[[gnu::always_inline]] inline void write_loop(std::byte* packet, const std::int32_t* sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store_element(packet, i, sum[i]);
}

WEFT_AVX2 void set_avx2(std::int32_t* s, const std::byte* p, std::size_t n) { set_loop(s, p, n); }
WEFT_AVX2 void add_avx2(std::int32_t* s, const std::byte* p, std::size_t n) { add_loop(s, p, n); }
WEFT_AVX2 void write_avx2(std::byte* p, const std::int32_t* s, std::size_t n) { write_loop(p, s, n); }

}  // namespace

void set_elements(std::span<std::int32_t> sum, std::span<const std::byte> packet) {
  numeric::has_avx2() ? set_avx2(sum.data(), packet.data(), sum.size())
                      : set_loop(sum.data(), packet.data(), sum.size());
}
void add_elements(std::span<std::int32_t> sum, std::span<const std::byte> packet) {
  numeric::has_avx2() ? add_avx2(sum.data(), packet.data(), sum.size())
                      : add_loop(sum.data(), packet.data(), sum.size());
}
void write_elements(std::span<std::byte> packet, std::span<const std::int32_t> sum) {
  numeric::has_avx2() ? write_avx2(packet.data(), sum.data(), sum.size())
                      : write_loop(packet.data(), sum.data(), sum.size());
}

void set_exponents(std::span<std::int8_t> largest, std::span<const std::byte> packet) {
  if (!largest.empty()) std::memcpy(largest.data(), packet.data(), largest.size());
}
void raise_exponents(std::span<std::int8_t> largest, std::span<const std::byte> packet) {
  for (std::size_t i = 0; i < largest.size(); ++i) {
    largest[i] = std::max(largest[i], static_cast<std::int8_t>(packet[i]));
  }
}
void write_exponents(std::span<std::byte> packet, std::span<const std::int8_t> largest) {
  if (!largest.empty()) std::memcpy(packet.data(), largest.data(), largest.size());
}

}  // namespace weft::aggregation
