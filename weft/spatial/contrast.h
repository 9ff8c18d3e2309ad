// Local contrast normalization: divides each value by the spread of its neighborhood.
#pragma once

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Subtracts a Gaussian mean over all channels and a window of `kernel` cells, which must be odd. Then divides by the
// root of the Gaussian mean of squares, or by 1 if that is 0. Cells outside the field are zeros. The Gaussian's sigma
// is a third of the distance from the window's center to its corner. Two exchanges forward and two backward.
// Collective.
[[nodiscard]] DistTensor contrast_norm(const DistTensor& x, const Sizes& kernel);

}  // namespace weft::spatial
