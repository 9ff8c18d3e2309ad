#include "weft/spatial/interpolation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Range;

constexpr std::int64_t kInterpolate = 13;  // first number in the key of a cached route; see halo.cpp

// The two source cells of each output of a range, and the weight of the upper one.
struct Taps {
  Sizes below;
  Sizes above;
  std::vector<double> weight;

  [[nodiscard]] Range needed() const { return {below.front(), above.back() + 1}; }
};

// Source positions in the precision that torch uses for the type, so that both select the same nearest neighbor.
struct Resampler {
  Sizes shape;
  Sizes outputs;
  Resampling mode;
  bool align_corners;
  std::optional<std::vector<double>> scales;
  bool wide;

  [[nodiscard]] Taps taps(std::size_t i, const Range& range) const {
    return wide ? taps_in<double>(i, range) : taps_in<float>(i, range);
  }

  template <class Real>
  [[nodiscard]] Taps taps_in(std::size_t i, const Range& range) const {
    Taps taps;
    for (std::int64_t o = range.begin; o < range.end; ++o) {
      const Real position = std::max(position_of(static_cast<Real>(o), step<Real>(i)), Real{0});
      const std::int64_t below = std::min(static_cast<std::int64_t>(std::floor(position)), shape[i] - 1);
      const double distance = static_cast<double>(position - static_cast<Real>(below));
      taps.below.push_back(below);
      taps.above.push_back(mode == Resampling::kLinear ? std::min(below + 1, shape[i] - 1) : below);
      taps.weight.push_back(std::min<double>(distance, 1));
    }
    return taps;
  }

  // Returns the distance between the source positions of adjacent outputs.
  template <class Real>
  [[nodiscard]] Real step(std::size_t i) const {
    if (aligns()) return outputs[i] > 1 ? static_cast<Real>(shape[i] - 1) / static_cast<Real>(outputs[i] - 1) : Real{0};
    if (scales && (*scales)[i] > 0) return static_cast<Real>(1.0 / (*scales)[i]);
    return static_cast<Real>(shape[i]) / static_cast<Real>(outputs[i]);
  }

  template <class Real>
  [[nodiscard]] Real position_of(Real output, Real step) const {
    if (mode == Resampling::kNearest || aligns()) return output * step;
    if (mode == Resampling::kNearestExact) return (output + Real(0.5)) * step;
    return step * (output + Real(0.5)) - Real(0.5);
  }

  [[nodiscard]] bool aligns() const { return align_corners && mode == Resampling::kLinear; }
};

Tensor indices(const Sizes& cells, std::int64_t first, const Tensor& like) {
  return at::tensor(at::IntArrayRef(cells), at::kLong).sub(first).to(like.device());
}

Tensor resampled(const Tensor& x, std::int64_t dim, const Taps& taps, std::int64_t first, bool linear) {
  const Tensor below = x.index_select(dim, indices(taps.below, first, x));
  if (!linear) return below;
  Sizes view(static_cast<std::size_t>(x.dim()), 1);
  view[static_cast<std::size_t>(dim)] = -1;
  const Tensor weight = at::tensor(at::ArrayRef<double>(taps.weight), at::kDouble).to(x.options()).view(view);
  return at::lerp(below, x.index_select(dim, indices(taps.above, first, x)), weight);
}

Sizes key_of(const Resampler& resampler) {
  Sizes key{kInterpolate, static_cast<std::int64_t>(resampler.mode), resampler.align_corners ? 1 : 0,
            resampler.wide ? 1 : 0};
  for (const double scale : resampler.scales.value_or(std::vector<double>())) {
    key.push_back(static_cast<std::int64_t>(std::llround(scale * (1 << 20))));
  }
  return key;
}

}  // namespace

Resampling parse_resampling(std::string_view name) {
  if (name == "nearest") return Resampling::kNearest;
  if (name == "nearest-exact") return Resampling::kNearestExact;
  if (name == "linear" || name == "bilinear" || name == "trilinear") return Resampling::kLinear;
  TORCH_CHECK_VALUE(false,
                    "weft: interpolation of tiles supports nearest, nearest-exact, linear, bilinear and trilinear, ",
                    "got '", name, "'");
}

DistTensor interpolate(const DistTensor& x, const Sizes& outputs, Resampling mode, bool align_corners,
                       const std::optional<std::vector<double>>& scales) {
  x.validate();
  const auto sizes = for_each_dim(outputs, x.dims(), "size");
  const auto shape = x.layout->shape();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    TORCH_CHECK_VALUE(sizes[i] > 0 && shape[i] > 0, "weft: interpolate expects non-empty inputs and outputs, got ",
                      shape[i], " and ", sizes[i], " in dimension ", i);
  }
  TORCH_CHECK_VALUE(!scales || scales->size() == x.dims(), "weft: interpolate expects one scale for each of ", x.dims(),
                    " dimensions, got ", scales ? scales->size() : 0);
  const Resampler resampler{shape, sizes, mode, align_corners, scales, x.local.scalar_type() == at::kDouble};
  const Halo halo = halo_by(
      x.layout, sizes, key_of(resampler),
      [&](std::size_t i, const Range& range) { return resampler.taps(i, range).needed(); }, partition::Border::kZeros);
  Tensor y = halo_exchange(x.local, halo.plan);
  const auto tile = halo.outputs->tile();
  for (std::size_t i = 0; i < x.dims() && !tile.empty() && !y.is_meta(); ++i) {
    y = resampled(y, x.leading() + static_cast<std::int64_t>(i), resampler.taps(i, tile.ranges[i]),
                  halo.plan->needed().ranges[i].begin, mode == Resampling::kLinear);
  }
  if (!tile.empty() && !y.is_meta()) return {y, halo.outputs};
  const Sizes empty = halo.outputs->local_sizes(x.leading_sizes());
  return {y.is_meta() ? at::empty(empty, y.options()) : nothing_like(y, empty), halo.outputs};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_interpolate", [](const Tensor& x, const LayoutPtr& layout, const Sizes& size, const std::string& mode,
                               bool align_corners, const std::optional<std::vector<double>>& scales) {
    return unpacked(interpolate({x, layout}, size, parse_resampling(mode), align_corners, scales));
  });
}

}  // namespace weft::spatial
