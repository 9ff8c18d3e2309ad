// A number that looks random for every counter: what is drawn for a cell or a layer then depends on its place in the
// whole, not on who owns it.
#pragma once

#include <cstdint>

namespace weft::partition {

// SplitMix64's finaliser: every bit of the counter reaches every bit of the result.
[[nodiscard]] constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace weft::partition
