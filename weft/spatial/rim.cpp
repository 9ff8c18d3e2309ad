#include "weft/spatial/rim.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace weft::spatial {
namespace {

using partition::Border;
using partition::Box;
using partition::Range;
using partition::Window;

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;

// The same padding on both sides, as kernels take it, or none if the number of outputs would not be right.
std::optional<std::int64_t> padding_for(const Window& window, const Range& owned, const Range& outputs) {
  const std::int64_t before = owned.begin - window.needed(outputs).begin;
  const std::int64_t room = owned.size() + 2 * before - window.reach();
  if (before < 0 || room < 0 || room / window.stride + 1 != outputs.size()) return std::nullopt;
  return before;
}

// The inputs that a tile has or knows to be zero: where it ends with the field, what lies beyond is no halo.
Range known(const Range& owned, std::int64_t field, Border border) {
  if (border != Border::kZeros) return owned;
  return {owned.begin == 0 ? -kFar : owned.begin, owned.end == field ? kFar : owned.end};
}

struct Finder {
  const std::vector<Window>& windows;
  const std::vector<bool>& native;
  const std::vector<std::int64_t>& shape;
  Border border;

  [[nodiscard]] std::optional<Rim> of(const Box& owned, const Box& outputs) const {
    Rim rim{{}, std::vector<std::int64_t>(windows.size(), 0)};
    if (outputs.empty()) return rim;
    if (owned.empty()) return std::nullopt;
    Box interior = outputs;
    for (std::size_t i = 0; i < windows.size(); ++i) {
      if (native[i]) {
        rim.padding[i] = windows[i].padding_lo;
        continue;
      }
      const auto padding = padding_for(windows[i], owned.ranges[i], outputs.ranges[i]);
      if (!padding) return std::nullopt;
      rim.padding[i] = *padding;
      interior.ranges[i] = outputs.ranges[i].intersect(windows[i].within(known(owned.ranges[i], shape[i], border)));
    }
    peel(rim, outputs, interior, owned);
    return rim;
  }

  // Slabs around the interior, dimension by dimension; without an interior the first slab is everything.
  void peel(Rim& rim, Box rest, const Box& interior, const Box& owned) const {
    const double all = static_cast<double>(rest.volume());
    std::int64_t again = 0;
    for (std::size_t i = 0; i < windows.size() && !rest.empty(); ++i) {
      const Range inner = interior.empty() ? Range{rest.ranges[i].end, rest.ranges[i].end} : interior.ranges[i];
      for (const Range range : {Range{rest.ranges[i].begin, inner.begin}, Range{inner.end, rest.ranges[i].end}}) {
        if (range.empty()) continue;
        Box slab = rest;
        slab.ranges[i] = range;
        again += slab.volume();
        rim.parts.push_back({slab, inputs_of(slab, owned)});
      }
      rest.ranges[i] = inner;
    }
    rim.heaviest = static_cast<double>(again) / all;
  }

  [[nodiscard]] Box inputs_of(const Box& outputs, const Box& owned) const {
    Box inputs;
    for (std::size_t i = 0; i < windows.size(); ++i) {
      inputs.ranges.push_back(native[i] ? owned.ranges[i] : windows[i].needed(outputs.ranges[i]));
    }
    return inputs;
  }
};

}  // namespace

std::shared_ptr<const Rim> rim_of(const partition::Tiling& inputs, const partition::Tiling& outputs,
                                  const std::vector<Window>& windows, const std::vector<bool>& native, Border border,
                                  std::int64_t rank) {
  const auto shape = inputs.shape();
  const Finder finder{windows, native, shape, border};
  auto mine = std::make_shared<Rim>();
  double heaviest = 0;
  for (std::int64_t r = 0; r < inputs.grid().size(); ++r) {
    auto rim = finder.of(inputs.tile(r), outputs.tile(r));
    if (!rim) return nullptr;
    heaviest = std::max(heaviest, rim->heaviest);
    if (r == rank) *mine = std::move(*rim);
  }
  mine->heaviest = heaviest;
  return mine;
}

}  // namespace weft::spatial
