// The project's only integer hash: counter-based random numbers depend on a cell's global index, not on its owner.
#pragma once

#include <cstdint>

namespace weft::partition {

// The finalizer of SplitMix64: every bit of the argument affects every bit of the result.
[[nodiscard]] constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace weft::partition
