// Splits a count of things into contiguous ranges, one per part: who owns which slice.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::partition {

// The half-open interval [begin, end) of indices.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] constexpr std::int64_t size() const { return end > begin ? end - begin : 0; }
  [[nodiscard]] constexpr bool empty() const { return end <= begin; }
  [[nodiscard]] constexpr bool contains(std::int64_t index) const { return begin <= index && index < end; }
  // What both share. Empty ranges are all of size 0, but begin where the overlap would have begun.
  [[nodiscard]] Range intersect(const Range& other) const;

  friend constexpr bool operator==(const Range&, const Range&) = default;
};

// The slice of `total` things that part `index` of `parts` owns. Sizes differ by at most one; the first parts get the
// remainder, and with more parts than things the last parts are empty.
[[nodiscard]] Range balanced(std::int64_t total, std::int64_t parts, std::int64_t index);

// The sizes of all the slices that `balanced` makes.
[[nodiscard]] std::vector<std::int64_t> balanced_sizes(std::int64_t total, std::int64_t parts);

// Where each slice begins, and at the end the total: one element more than `sizes`.
[[nodiscard]] std::vector<std::int64_t> offsets(const std::vector<std::int64_t>& sizes);

// The part whose slice, as `balanced` makes it, contains thing `index`.
[[nodiscard]] std::int64_t owner(std::int64_t total, std::int64_t parts, std::int64_t index);

}  // namespace weft::partition
