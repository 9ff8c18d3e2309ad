#include "weft/partition/box.h"

#include <algorithm>
#include <stdexcept>

namespace weft::partition {
namespace {

void require_same_dims(const Box& a, const Box& b) {
  if (a.dims() == b.dims()) return;
  throw std::invalid_argument("Box: numbers of dimensions differ: " + a.describe() + " and " + b.describe());
}

}  // namespace

bool Box::empty() const {
  return std::any_of(ranges.begin(), ranges.end(), [](const Range& range) { return range.empty(); });
}

std::int64_t Box::volume() const {
  std::int64_t product = 1;
  for (const Range& range : ranges) product *= range.size();
  return product;
}

std::vector<std::int64_t> Box::sizes() const {
  std::vector<std::int64_t> result;
  result.reserve(dims());
  for (const Range& range : ranges) result.push_back(range.size());
  return result;
}

bool Box::contains(const Box& other) const {
  require_same_dims(*this, other);
  return other.empty() || intersect(other) == other;
}

Box Box::intersect(const Box& other) const {
  require_same_dims(*this, other);
  Box result;
  result.ranges.reserve(dims());
  for (std::size_t i = 0; i < dims(); ++i) result.ranges.push_back(ranges[i].intersect(other.ranges[i]));
  return result;
}

std::string Box::describe() const {
  std::string text;
  for (const Range& range : ranges) {
    text += (text.empty() ? "[" : " x [") + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
  }
  return text.empty() ? "a point" : text;
}

Box Box::whole(const std::vector<std::int64_t>& shape) {
  Box result;
  result.ranges.reserve(shape.size());
  for (const std::int64_t size : shape) result.ranges.push_back({0, size});
  return result;
}

}  // namespace weft::partition
