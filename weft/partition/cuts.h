// A division of one dimension into contiguous parts of any size, including empty ones.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/range.h"

namespace weft::partition {

class Cuts {
 public:
  // Part sizes differ by at most one; see balanced() in range.h.
  [[nodiscard]] static Cuts balanced(std::int64_t total, std::int64_t parts);
  // One part per size, in order. Throws std::invalid_argument if `sizes` is empty or contains a negative size.
  [[nodiscard]] static Cuts of_sizes(const std::vector<std::int64_t>& sizes);

  [[nodiscard]] std::int64_t parts() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  [[nodiscard]] std::int64_t total() const { return offsets_.back(); }
  // Throws std::invalid_argument if `index` is out of range.
  [[nodiscard]] Range part(std::int64_t index) const;
  // The part that contains cell `index`. Throws std::invalid_argument if `index` is out of range.
  [[nodiscard]] std::int64_t owner(std::int64_t index) const;
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  [[nodiscard]] bool is_balanced() const;

  friend bool operator==(const Cuts&, const Cuts&) = default;

 private:
  explicit Cuts(std::vector<std::int64_t> offsets) : offsets_(std::move(offsets)) {}

  std::vector<std::int64_t> offsets_;  // parts() + 1 values, from 0 to the total
};

}  // namespace weft::partition
