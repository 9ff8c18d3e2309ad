// Splits transfers into chunks whose counts fit MPI's int parameters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "weft/mpi/options.h"

namespace weft::mpi {

// Calls piece(first, count) for consecutive chunks of at most Options::max_count elements. An empty transfer gives one
// call with count 0, because all ranks must call a collective even if they have no elements.
template <class Piece>
void for_each_chunk(std::int64_t total, Piece&& piece) {
  const std::int64_t limit = options().max_count;
  std::int64_t first = 0;
  do {
    const std::int64_t count = std::min(limit, total - first);
    piece(first, static_cast<int>(count));
    first += count;
  } while (first < total);
}

[[nodiscard]] inline const std::byte* at(const void* base, std::int64_t elements, std::int64_t size) noexcept {
  return static_cast<const std::byte*>(base) + elements * size;
}
[[nodiscard]] inline std::byte* at(void* base, std::int64_t elements, std::int64_t size) noexcept {
  return static_cast<std::byte*>(base) + elements * size;
}

[[nodiscard]] inline std::int64_t total_of(std::span<const std::int64_t> counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}
[[nodiscard]] inline bool all_equal(std::span<const std::int64_t> counts) noexcept {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}
// Whether the counts and their displacements fit into one MPI call.
[[nodiscard]] inline bool fits(std::span<const std::int64_t> counts) noexcept {
  return total_of(counts) <= options().max_count;
}

}  // namespace weft::mpi
