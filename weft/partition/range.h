// Half-open ranges of indices, and the balanced division of a range into contiguous parts.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::partition {

// A half-open interval of indices.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] constexpr std::int64_t size() const { return end > begin ? end - begin : 0; }
  [[nodiscard]] constexpr bool empty() const { return end <= begin; }
  [[nodiscard]] constexpr bool contains(std::int64_t index) const { return begin <= index && index < end; }
  // The overlap of both ranges. An empty result starts at the larger of the two starts.
  [[nodiscard]] Range intersect(const Range& other) const;

  friend constexpr bool operator==(const Range&, const Range&) = default;
};

// Returns the slice of `total` items that part `index` of `parts` owns. Sizes differ by at most one: the first parts
// get the remainder, and the last parts are empty if there are more parts than items. Throws std::invalid_argument if
// an argument is out of range.
[[nodiscard]] Range balanced(std::int64_t total, std::int64_t parts, std::int64_t index);

// Returns the sizes of the slices that balanced() returns. Throws std::invalid_argument if an argument is out of range.
[[nodiscard]] std::vector<std::int64_t> balanced_sizes(std::int64_t total, std::int64_t parts);

// Returns the start of each slice, followed by the total: one element more than `sizes`. Throws std::invalid_argument
// for negative sizes and overflow.
[[nodiscard]] std::vector<std::int64_t> offsets(const std::vector<std::int64_t>& sizes);

// Returns the part whose slice, as returned by balanced(), contains item `index`. Throws std::invalid_argument if an
// argument is out of range.
[[nodiscard]] std::int64_t owner(std::int64_t total, std::int64_t parts, std::int64_t index);

}  // namespace weft::partition
