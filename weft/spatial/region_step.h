// Consecutive layers of a split network behind one exchange: which layers can be, and the step that they make.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "weft/partition/window.h"
#include "weft/spatial/flow.h"

namespace weft::spatial {

// A layer as a halo region runs it.
struct RegionPart {
  std::vector<partition::Window> windows;  // by dimension; none: each cell by itself
  double fill = 0;                         // of what lies outside of the field
  std::vector<at::Tensor> weights;         // the layer's own
  std::int64_t channels = 0;               // of the results; 0 for as many as there were
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                           const std::vector<std::int64_t>& native_padding)>
      apply;

  // Whether it needs a halo where the field is cut so.
  [[nodiscard]] bool exchanges(const LayoutPtr& layout) const;
};

// None for layers that end a region: convolutions padded with zeros, max pooling and activations can be in one.
[[nodiscard]] std::optional<RegionPart> region_part_of(const ModulePtr& module, std::size_t dims);

// The parts on tiles of `layout`; on anything else what `one_by_one` does. Throws std::invalid_argument where the
// layers do not fit behind one exchange.
[[nodiscard]] Run region_step(std::vector<RegionPart> parts, const LayoutPtr& layout, Run one_by_one);

}  // namespace weft::spatial
