#include "weft/spatial/convolution/rim.h"

#include <algorithm>
#include <optional>

namespace weft::spatial {
namespace {

using partition::Border;
using partition::Box;
using partition::Range;
using partition::Window;

// Returns equal padding for both sides, or nothing if no equal padding gives the number of outputs.
std::optional<std::int64_t> padding_for(const Window& window, const Range& owned, const Range& outputs) {
  const std::int64_t before = owned.begin - window.needed(outputs).begin;
  const std::int64_t room = owned.size() + 2 * before - window.reach();
  if (before < 0 || room < 0 || room / window.stride + 1 != outputs.size()) return std::nullopt;
  return before;
}

struct Finder {
  const std::vector<Window>& windows;
  const std::vector<bool>& native;
  const Sizes& shape;
  Border border;

  [[nodiscard]] std::optional<Rim> of(const Box& owned, const Box& outputs) const {
    Rim rim{{}, Sizes(windows.size(), 0)};
    if (outputs.empty()) return rim;
    if (owned.empty()) return std::nullopt;
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const auto padding = native[i] ? std::optional<std::int64_t>(windows[i].padding_lo)
                                     : padding_for(windows[i], owned.ranges[i], outputs.ranges[i]);
      if (!padding) return std::nullopt;
      rim.padding[i] = *padding;
    }
    for (std::size_t i = 0; i < windows.size(); ++i) {
      if (native[i]) continue;
      const Range needed = windows[i].needed(outputs.ranges[i]);
      add(rim, {needed.begin, owned.ranges[i].begin}, i, owned, outputs);
      add(rim, {owned.ranges[i].end, needed.end}, i, owned, outputs);
    }
    return rim;
  }

  // Adds the cells `slab` in dimension `dim`. They have the width of the tile in earlier dimensions and the width of
  // the needed box in later ones, so that every cell of the halo is in exactly one slab.
  void add(Rim& rim, Range slab, std::size_t dim, const Box& owned, const Box& outputs) const {
    const Window& window = windows[dim];
    if (border == Border::kZeros) slab = slab.intersect({0, shape[dim]});
    Rim::Part part{owned, owned, outputs, dim, {}, rim.padding};
    part.outputs.ranges[dim] = window.reaching(slab, outputs.ranges[dim]);
    part.taps = window.taps(slab, part.outputs.ranges[dim]);
    if (part.taps.empty()) return;
    for (std::size_t i = dim; i < windows.size(); ++i) {
      if (native[i]) continue;
      part.padding[i] = 0;
      part.inputs.ranges[i] = windows[i].needed(part.outputs.ranges[i]);
    }
    part.inputs.ranges[dim].begin += window.dilation * part.taps.begin;
    part.inputs.ranges[dim].end -= window.dilation * (window.kernel - part.taps.end);
    part.halo = part.inputs;
    part.halo.ranges[dim] = part.inputs.ranges[dim].intersect(slab);
    if (part.halo.empty()) return;
    const double taps = static_cast<double>(part.taps.size()) / static_cast<double>(window.kernel);
    rim.heaviest += taps * static_cast<double>(part.outputs.volume()) / static_cast<double>(outputs.volume());
    rim.parts.push_back(std::move(part));
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
