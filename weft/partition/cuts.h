// Where one dimension is cut: a contiguous slice for each part, of any size, also none.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/range.h"

namespace weft::partition {

class Cuts {
 public:
  // Sizes that differ by at most one; see balanced() in range.h.
  [[nodiscard]] static Cuts balanced(std::int64_t total, std::int64_t parts);
  // One part per size, in order. Throws std::invalid_argument for none or a negative one.
  [[nodiscard]] static Cuts of_sizes(const std::vector<std::int64_t>& sizes);

  [[nodiscard]] std::int64_t parts() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  [[nodiscard]] std::int64_t total() const { return offsets_.back(); }
  // Throws std::invalid_argument for a part that does not exist.
  [[nodiscard]] Range part(std::int64_t index) const;
  // The part that holds thing `index`; never an empty one.
  [[nodiscard]] std::int64_t owner(std::int64_t index) const;
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  [[nodiscard]] bool is_balanced() const;

  friend bool operator==(const Cuts&, const Cuts&) = default;

 private:
  explicit Cuts(std::vector<std::int64_t> offsets) : offsets_(std::move(offsets)) {}

  std::vector<std::int64_t> offsets_;  // one more than parts; from 0 to the total
};

}  // namespace weft::partition
