#include "weft/partition/cuts.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace weft::partition {

Cuts Cuts::balanced(std::int64_t total, std::int64_t parts) { return Cuts(offsets(balanced_sizes(total, parts))); }

Cuts Cuts::of_sizes(const std::vector<std::int64_t>& sizes) {
  if (sizes.empty()) throw std::invalid_argument("Cuts: at least one part is required");
  return Cuts(offsets(sizes));
}

Range Cuts::part(std::int64_t index) const {
  if (index < 0 || index >= parts()) {
    throw std::invalid_argument("Cuts: part must be in [0, " + std::to_string(parts()) + "), not " +
                                std::to_string(index));
  }
  const auto at = offsets_.begin() + index;
  return {*at, *(at + 1)};
}

std::int64_t Cuts::owner(std::int64_t index) const {
  if (index < 0 || index >= total()) {
    throw std::invalid_argument("Cuts: index must be in [0, " + std::to_string(total()) + "), not " +
                                std::to_string(index));
  }
  // Equal offsets belong to empty parts; the part after the last of them is the non-empty one.
  return std::upper_bound(offsets_.begin(), offsets_.end(), index) - offsets_.begin() - 1;
}

std::vector<std::int64_t> Cuts::sizes() const {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < parts(); ++i) result.push_back(part(i).size());
  return result;
}

bool Cuts::is_balanced() const { return *this == balanced(total(), parts()); }

}  // namespace weft::partition
