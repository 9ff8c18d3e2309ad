// Numbers in network byte order, at any alignment.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::aggregation {

static_assert(std::endian::native == std::endian::little, "torch supports only little-endian machines");

[[nodiscard]] inline std::uint16_t swap_bytes(std::uint16_t x) { return __builtin_bswap16(x); }
[[nodiscard]] inline std::uint32_t swap_bytes(std::uint32_t x) { return __builtin_bswap32(x); }
[[nodiscard]] inline std::uint64_t swap_bytes(std::uint64_t x) { return __builtin_bswap64(x); }

template <std::unsigned_integral T>
[[nodiscard]] T load_big_endian(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return swap_bytes(value);
}

template <std::unsigned_integral T>
void store_big_endian(std::byte* to, T value) {
  value = swap_bytes(value);
  std::memcpy(to, &value, sizeof value);
}

// Element `i` of a packet: a big-endian int32.
[[nodiscard]] inline std::int32_t load_element(const std::byte* elements, std::size_t i) {
  return static_cast<std::int32_t>(load_big_endian<std::uint32_t>(elements + 4 * i));
}
inline void store_element(std::byte* elements, std::size_t i, std::int32_t value) {
  store_big_endian(elements + 4 * i, static_cast<std::uint32_t>(value));
}

}  // namespace weft::aggregation
