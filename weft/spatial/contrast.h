// Local contrast normalisation: every value in units of its neighbourhood's spread.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Subtracts a gaussian mean over all channels and a window of `kernel` (odd) cells, zeros outside, then divides by the
// root of the gaussian mean of squares, by 1 where that is 0. The gaussian's sigma is a third of the distance from the
// window's middle to its corner. Two exchanges forward and two backward. Collective.
[[nodiscard]] DistTensor contrast_norm(const DistTensor& x, const std::vector<std::int64_t>& kernel);

}  // namespace weft::spatial
