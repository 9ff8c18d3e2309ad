// Resampling of tiles to another size: nearest neighbor and linear, like torch's interpolate.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

enum class Resampling : std::int8_t { kNearest, kNearestExact, kLinear };

// Parses "nearest", "nearest-exact", "linear", "bilinear" or "trilinear". Throws (TORCH_CHECK) for other names.
[[nodiscard]] Resampling parse_resampling(std::string_view name);

// Resamples to `outputs` cells. Optional `scales` determine the source positions like torch's scale_factor. Collective.
[[nodiscard]] DistTensor interpolate(const DistTensor& x, const Sizes& outputs, Resampling mode,
                                     bool align_corners = false,
                                     const std::optional<std::vector<double>>& scales = std::nullopt);

}  // namespace weft::spatial
