// The residual norm: combines the residuals of all points and ranks into one number.
#pragma once

#include "weft/multigrid/options.h"

namespace weft::multigrid {

// Adds the norm of one point to a rank's part: a sum of norms, a sum of squares or a maximum. Keeps NaN.
[[nodiscard]] double accumulate(TemporalNorm kind, double sum, double norm);
// Whether the parts of the ranks are combined by maximum instead of sum.
[[nodiscard]] bool takes_maximum(TemporalNorm kind);
// The norm, given the combined parts of all ranks.
[[nodiscard]] double finish(TemporalNorm kind, double sum);

}  // namespace weft::multigrid
