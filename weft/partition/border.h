// What lies beyond the edge of a field: nothing, its mirror image, its last cell again, or its other end.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/partition/range.h"

namespace weft::partition {

// As torch's padding_mode: zeros, reflect, replicate, circular.
enum class Border : std::int8_t { kZeros, kReflect, kReplicate, kCircular };

// Throws std::invalid_argument naming those that exist.
[[nodiscard]] Border parse_border(std::string_view name);

// Consecutive cells of which each continues the one before: cell target.begin + j holds what cell source + step * j of
// the field holds. Step 1 runs with the field, -1 against it, 0 repeats one cell.
struct Run {
  Range target;
  std::int64_t source = 0;
  std::int8_t step = 1;

  // The cells of the field that it reads, and the run that reads only those of them in `owned`.
  [[nodiscard]] Range sources() const;
  [[nodiscard]] Run within(const Range& owned) const;

  friend bool operator==(const Run&, const Run&) = default;
};

// The cells `needed`, which may reach beyond [0, size), as runs in ascending order. With kZeros the cells outside
// belong to none. Throws std::invalid_argument where kReflect or kCircular has to reach further than the field does.
[[nodiscard]] std::vector<Run> runs(const Range& needed, std::int64_t size, Border border);

}  // namespace weft::partition
