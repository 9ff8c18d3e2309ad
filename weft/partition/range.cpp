#include "weft/partition/range.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace weft::partition {
namespace {

void require_split(const char* function, std::int64_t total, std::int64_t parts) {
  if (total < 0) {
    throw std::invalid_argument(std::string(function) + ": total must be at least 0, not " + std::to_string(total));
  }
  if (parts < 1) {
    throw std::invalid_argument(std::string(function) + ": parts must be at least 1, not " + std::to_string(parts));
  }
}

void require_index(const char* function, std::int64_t index, std::int64_t bound) {
  if (index < 0 || index >= bound) {
    throw std::invalid_argument(std::string(function) + ": index must be in [0, " + std::to_string(bound) + "), not " +
                                std::to_string(index));
  }
}

}  // namespace

Range Range::intersect(const Range& other) const {
  const std::int64_t first = std::max(begin, other.begin);
  return {first, std::max(first, std::min(end, other.end))};
}

Range balanced(std::int64_t total, std::int64_t parts, std::int64_t index) {
  require_split("balanced", total, parts);
  require_index("balanced", index, parts);
  const std::int64_t size = total / parts;
  const std::int64_t remainder = total % parts;
  const std::int64_t begin = index * size + std::min(index, remainder);
  return {begin, begin + size + (index < remainder ? 1 : 0)};
}

std::vector<std::int64_t> balanced_sizes(std::int64_t total, std::int64_t parts) {
  require_split("balanced_sizes", total, parts);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), total / parts);
  std::for_each_n(sizes.begin(), total % parts, [](std::int64_t& size) { ++size; });
  return sizes;
}

std::vector<std::int64_t> offsets(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> result(1, 0);
  result.reserve(sizes.size() + 1);
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      throw std::invalid_argument("offsets: sizes must be at least 0, not " + std::to_string(size) + " at position " +
                                  std::to_string(result.size() - 1));
    }
    if (size > std::numeric_limits<std::int64_t>::max() - result.back()) {
      throw std::invalid_argument("offsets: the sum of sizes must fit in 64 bits; it overflows at position " +
                                  std::to_string(result.size() - 1));
    }
    result.push_back(result.back() + size);
  }
  return result;
}

std::int64_t owner(std::int64_t total, std::int64_t parts, std::int64_t index) {
  require_split("owner", total, parts);
  require_index("owner", index, total);
  const std::int64_t size = total / parts;
  const std::int64_t remainder = total % parts;
  // The first `remainder` parts hold size + 1 items, the others hold size items.
  const std::int64_t in_larger_parts = remainder * (size + 1);
  return index < in_larger_parts ? index / (size + 1) : remainder + (index - in_larger_parts) / size;
}

}  // namespace weft::partition
