#include "weft/partition/border.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace weft::partition {
namespace {

// Padding may reflect or wrap around only once; torch has the same limits.
void require_valid_padding(const Range& needed, std::int64_t size, Border border) {
  const std::int64_t most = border == Border::kReflect ? size - 1 : size;
  const std::int64_t outside = std::max(-needed.begin, needed.end - size);
  if (border == Border::kZeros || outside <= 0) return;
  if (border == Border::kReplicate ? size > 0 : outside <= most) return;
  throw std::invalid_argument("border: padding of " + std::to_string(outside) + " by " +
                              (border == Border::kReflect    ? "reflect"
                               : border == Border::kCircular ? "circular"
                                                             : "replicate") +
                              " needs a field of at least " + std::to_string(outside + (size - most)) +
                              " cells, this one has " + std::to_string(size));
}

Run before(const Range& target, std::int64_t size, Border border) {
  if (border == Border::kReflect) return {target, -target.begin, -1};
  if (border == Border::kReplicate) return {target, 0, 0};
  return {target, target.begin + size, 1};
}

Run behind(const Range& target, std::int64_t size, Border border) {
  if (border == Border::kReflect) return {target, 2 * (size - 1) - target.begin, -1};
  if (border == Border::kReplicate) return {target, size - 1, 0};
  return {target, target.begin - size, 1};
}

}  // namespace

Border parse_border(std::string_view name) {
  if (name == "zeros") return Border::kZeros;
  if (name == "reflect") return Border::kReflect;
  if (name == "replicate") return Border::kReplicate;
  if (name == "circular") return Border::kCircular;
  throw std::invalid_argument("border: expected padding mode zeros, reflect, replicate or circular, got '" +
                              std::string(name) + "'");
}

Range Run::sources() const {
  const std::int64_t length = target.size();
  if (length == 0) return {source, source};
  if (step == 0) return {source, source + 1};
  return step > 0 ? Range{source, source + length} : Range{source - length + 1, source + 1};
}

Run Run::within(const Range& owned) const {
  const Range shared = sources().intersect(owned);
  if (shared.empty()) return {{target.begin, target.begin}, source, step};
  if (step == 0) return *this;
  const std::int64_t skipped = step > 0 ? shared.begin - source : source - (shared.end - 1);
  const std::int64_t first = target.begin + skipped;
  return {{first, first + shared.size()}, source + step * skipped, step};
}

std::vector<Run> runs(const Range& needed, std::int64_t size, Border border) {
  std::vector<Run> result;
  if (needed.empty()) return result;
  require_valid_padding(needed, size, border);
  const Range low = needed.intersect({needed.begin, 0});
  const Range inside = needed.intersect({0, size});
  const Range high = needed.intersect({size, needed.end});
  if (border != Border::kZeros && !low.empty()) result.push_back(before(low, size, border));
  if (!inside.empty()) result.push_back({inside, inside.begin, 1});
  if (border != Border::kZeros && !high.empty()) result.push_back(behind(high, size, border));
  return result;
}

}  // namespace weft::partition
