// Padding modes: which cell of a field supplies the value of a cell outside of it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/partition/range.h"

namespace weft::partition {

// The values of torch's padding_mode.
enum class Border : std::int8_t { kZeros, kReflect, kReplicate, kCircular };

// Parses a padding_mode. Throws std::invalid_argument, listing the valid names.
[[nodiscard]] Border parse_border(std::string_view name);

// Maps consecutive target cells to cells of the field: the j-th cell of `target` copies cell source + step * j. Step 1
// copies forwards, -1 backwards, and 0 repeats a single cell.
struct Run {
  Range target;
  std::int64_t source = 0;
  std::int8_t step = 1;

  // The cells of the field that the run reads.
  [[nodiscard]] Range sources() const;
  // The part of the run that reads only cells in `owned`.
  [[nodiscard]] Run within(const Range& owned) const;

  friend bool operator==(const Run&, const Run&) = default;
};

// Splits the cells `needed`, which may extend beyond [0, size), into runs in ascending order. With kZeros, no run
// covers the cells outside. Throws std::invalid_argument if the padding is too large for the field.
[[nodiscard]] std::vector<Run> runs(const Range& needed, std::int64_t size, Border border);

}  // namespace weft::partition
