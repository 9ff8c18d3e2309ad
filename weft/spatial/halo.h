// The halo of a windowed layer: the plan of its exchange, the tiles of its outputs, and the padding left to torch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

struct Halo {
  HaloPlanPtr plan;
  LayoutPtr outputs;
  // Padding by dimension that torch's kernel adds without a copy. Nonzero only in dimensions that are not cut and have
  // symmetric zero padding.
  Sizes native_padding;
  // Null if a tile's outputs cannot be computed without its halo.
  std::shared_ptr<const Rim> rim = nullptr;
};

// Throws std::invalid_argument if a window does not fit into the padded field.
[[nodiscard]] Halo halo_of(const LayoutPtr& inputs, const std::vector<partition::Window>& windows,
                           partition::Border border = partition::Border::kZeros);

// Returns the halo of windows with zero padding that is never left to torch: the box that a rank needs contains it.
// Throws (TORCH_CHECK) if a window does not fit.
[[nodiscard]] Halo padded_halo_of(const LayoutPtr& inputs, const std::vector<partition::Window>& windows);

// Returns true if torch's kernel pads a dimension by itself, without a copy: the dimension is not cut.
[[nodiscard]] bool pads_natively(const LayoutPtr& inputs, std::size_t dim, const partition::Window& window,
                                 partition::Border border = partition::Border::kZeros);

// Returns the halo of transposed windows.
[[nodiscard]] Halo halo_of(const LayoutPtr& inputs, const std::vector<partition::TransposedWindow>& windows);

// Returns the halo of irregular windows: `needed` returns the inputs of an output range in a dimension.
// `rim`, if given, computes the rim of the tiles.
using FindRim = std::function<std::shared_ptr<const Rim>(const partition::Tiling& outputs)>;
template <class Needed>
[[nodiscard]] Halo halo_by(const LayoutPtr& inputs, const Sizes& outputs, Sizes key, Needed&& needed,
                           partition::Border border, const FindRim& rim = nullptr);

// Returns an empty tensor with the shape of a layer's result, which depends on `x` for autograd.
[[nodiscard]] at::Tensor nothing_like(const at::Tensor& x, at::IntArrayRef sizes);

// Returns windows in `dims` dimensions. Each list has one value for all dimensions or one value per dimension.
[[nodiscard]] std::vector<partition::Window> windows_of(std::size_t dims, at::IntArrayRef kernel,
                                                        at::IntArrayRef stride, at::IntArrayRef padding,
                                                        at::IntArrayRef dilation = 1);

// Returns one number of each window, e.g. numbers_of(windows, &Window::stride).
[[nodiscard]] Sizes numbers_of(const std::vector<partition::Window>& windows, std::int64_t partition::Window::* number);

// Expands one value to `dims` values. Throws (TORCH_CHECK) an error that names `what` for other lengths.
[[nodiscard]] Sizes for_each_dim(at::IntArrayRef given, std::size_t dims, const char* what);

// Implementation of halo_by().

[[nodiscard]] partition::Tiling tile_outputs(const LayoutPtr& inputs, const Sizes& outputs);
[[nodiscard]] HaloPlanPtr plan_for(const LayoutPtr& inputs, std::vector<partition::Box> owned,
                                   std::vector<partition::Box> needed, partition::Border border);

template <class Needed>
Halo halo_by(const LayoutPtr& inputs, const Sizes& outputs, Sizes key, Needed&& needed, partition::Border border,
             const FindRim& rim) {
  key.push_back(static_cast<std::int64_t>(border));
  key.insert(key.end(), outputs.begin(), outputs.end());
  const auto layout_key = inputs->key();
  key.insert(key.end(), layout_key.begin(), layout_key.end());
  const Route& route = inputs->grid()->route(key, [&] {
    const partition::Tiling tiling = tile_outputs(inputs, outputs);
    std::vector<partition::Box> boxes;
    for (const partition::Box& tile : tiling.tiles()) {
      partition::Box box;
      for (std::size_t i = 0; i < tile.dims(); ++i) {
        // An empty tile needs no cells in any dimension.
        box.ranges.push_back(tile.empty() ? partition::Range{} : needed(i, tile.ranges[i]));
      }
      boxes.push_back(std::move(box));
    }
    return Route{plan_for(inputs, inputs->tiling().tiles(), std::move(boxes), border), tiling,
                 rim ? rim(tiling) : nullptr};
  });
  return {route.plan, c10::make_intrusive<Layout>(inputs->grid(), route.outputs), Sizes(inputs->dims(), 0), route.rim};
}

}  // namespace weft::spatial
