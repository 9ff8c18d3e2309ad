#include "weft/experiment/layers/window.h"

#include <algorithm>

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/sizes.h"

namespace weft::experiment {
namespace {

WindowSettings read_with_keys(Fields& fields, const char* kernel, const char* padding, const Sizes& stride) {
  WindowSettings window;
  fields.require(kernel);
  window.kernel = pair_of(fields.sizes(kernel), {1, 1});
  window.stride = pair_of(fields.sizes("stride"), stride.empty() ? window.kernel : stride);
  window.padding = pair_of(fields.sizes(padding, kCount), {0, 0});
  return window;
}

}  // namespace

Sizes WindowSettings::reach() const {
  Sizes reach;
  for (std::size_t i = 0; i < kernel.size(); ++i) reach.push_back(dilation[i] * (kernel[i] - 1) + 1);
  return reach;
}

std::int64_t WindowSettings::cells() const { return saturating_product({kernel[0], kernel[1]}); }

Extent WindowSettings::output(std::int64_t maps, const Extent& in, const LayerProblems& problems) const {
  Extent out{maps, in.shape};
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    const std::int64_t room = in.shape[i] + 2 * padding[i] - reach()[i];
    if (room < 0) {
      problems.expected("a window that fits into " + text_of(in.shape), text_of(reach()));
      return out;
    }
    out.shape[i] = room / stride[i] + 1;
  }
  return out;
}

WindowSettings read_window(Fields& fields, const Sizes& stride) {
  return read_with_keys(fields, "kernel", "padding", stride);
}

WindowSettings read_neon_window(Fields& fields, NeonLayer& layer) {
  layer.spec.declared_maps = fields.integer("nifm", kSize);
  layer.spec.declared_shape = fields.sizes("ifmshape");
  return read_with_keys(fields, "fshape", "pad", {1, 1});
}

WindowSettings read_neon_pool(Fields& fields, NeonLayer& layer) {
  WindowSettings window = read_neon_window(fields, layer);
  static_cast<void>(fields.integer("nofm", kSize));
  return window;
}

void require_odd(const Sizes& kernel, const LayerProblems& problems) {
  const bool even = std::any_of(kernel.begin(), kernel.end(), [](std::int64_t size) { return size % 2 == 0; });
  if (even) problems.expected("odd windows", text_of(kernel));
}

void require_groups(std::int64_t groups, std::int64_t inputs, std::int64_t outputs, const LayerProblems& problems) {
  if (inputs % groups == 0 && outputs % groups == 0) return;
  problems.expected("groups that divide both " + std::to_string(inputs) + " input maps and " + std::to_string(outputs) +
                        " output maps",
                    std::to_string(groups));
}

Extent limit_growth(const Extent& in, const Extent& out, const LayerProblems& problems) {
  constexpr std::int64_t kMost = 1'000'000'000;
  if (out.shape[0] <= kMost && out.shape[1] <= kMost) return out;
  problems.expected("at most " + std::to_string(kMost) + " rows and columns", text_of(out.shape));
  return in;
}

Extent PoolSettings::output(const LayerSizes& sizes, const LayerProblems& problems) const {
  for (std::size_t i = 0; i < window_.kernel.size(); ++i) {
    if (2 * window_.padding[i] <= window_.kernel[i]) continue;
    problems.expected("padding of at most half a window", text_of(window_.padding));
    return sizes.in;
  }
  return window_.output(sizes.in.maps, sizes.in, problems);
}

BuiltLayer PoolSettings::build(const LayerContext& context) const {
  spatial::PoolingOptions options;
  options.kernel = window_.kernel;
  options.stride = window_.stride;
  options.padding = window_.padding;
  return {pool(std::move(options)), context.mesh.layout(context.sizes.out.shape)};
}

}  // namespace weft::experiment
