// Arithmetic of the switch on packets: adds elements, takes the maximum of exponents, writes sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::aggregation {

// `packet` holds as many big-endian int32 as `sum` has elements. Sums wrap like the registers of a hardware switch.
void set_elements(std::span<std::int32_t> sum, std::span<const std::byte> packet);
void add_elements(std::span<std::int32_t> sum, std::span<const std::byte> packet);
void write_elements(std::span<std::byte> packet, std::span<const std::int32_t> sum);

// Both spans have the same number of int8.
void set_exponents(std::span<std::int8_t> largest, std::span<const std::byte> packet);
void raise_exponents(std::span<std::int8_t> largest, std::span<const std::byte> packet);
void write_exponents(std::span<std::byte> packet, std::span<const std::int8_t> largest);

}  // namespace weft::aggregation
