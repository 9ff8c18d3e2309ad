// Windows that slide over a field: their settings, and the size of the output.
#pragma once

#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/spatial/pooling.h"

namespace weft::experiment {

struct WindowSettings {
  Sizes kernel{1, 1};
  Sizes stride{1, 1};
  Sizes padding{0, 0};
  Sizes dilation{1, 1};

  // Returns the number of cells from the first to the last that a window covers, by dimension.
  [[nodiscard]] Sizes reach() const;
  [[nodiscard]] std::int64_t cells() const;
  // Returns `maps` maps of the size of the output. Reports windows that do not fit.
  [[nodiscard]] Extent output(std::int64_t maps, const Extent& in, const LayerProblems& problems) const;
};

// Reads kernel, stride and padding. An empty `stride` means that the stride defaults to the kernel.
[[nodiscard]] WindowSettings read_window(Fields& fields, const Sizes& stride);
// Reads neon's fshape, stride and pad, and the declared input.
[[nodiscard]] WindowSettings read_neon_window(Fields& fields, NeonLayer& layer);
// Like read_neon_window(), for layers that keep the number of maps; accepts and ignores nofm.
[[nodiscard]] WindowSettings read_neon_pool(Fields& fields, NeonLayer& layer);

// Reports windows of even size, which have no center.
void require_odd(const Sizes& kernel, const LayerProblems& problems);
// Reports groups that do not divide the maps of a convolution.
void require_groups(std::int64_t groups, std::int64_t inputs, std::int64_t outputs, const LayerProblems& problems);
// Returns `out`, or reports the problem and returns `in` if layers enlarge a field beyond the range of sizes.
[[nodiscard]] Extent limit_growth(const Extent& in, const Extent& out, const LayerProblems& problems);

// Settings of a layer that pools each window to one value.
class PoolSettings : public LayerSettings {
 public:
  explicit PoolSettings(WindowSettings window) : window_(std::move(window)) {}
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override;
  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override;

 protected:
  [[nodiscard]] virtual spatial::nn::LayerPtr pool(spatial::PoolingOptions options) const = 0;

 private:
  WindowSettings window_;
};

}  // namespace weft::experiment
