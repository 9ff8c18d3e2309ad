// Resampling of tiles to another size: nearest neighbour and linear, as torch's interpolate.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

enum class Resampling : std::int8_t { kNearest, kNearestExact, kLinear };

// "nearest", "nearest-exact", "linear", "bilinear", "trilinear"; throws (TORCH_CHECK) for others.
[[nodiscard]] Resampling parse_resampling(std::string_view name);

// To `outputs` cells. `scales`, where the caller chose them, decide the source positions as torch's scale_factor does.
[[nodiscard]] DistTensor interpolate(const DistTensor& x, const std::vector<std::int64_t>& outputs, Resampling mode,
                                     bool align_corners = false,
                                     const std::optional<std::vector<double>>& scales = std::nullopt);

}  // namespace weft::spatial
