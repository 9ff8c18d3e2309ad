// The residual norm: many points' residuals as one number, over the ranks too.
#pragma once

#include "weft/multigrid/options.h"

namespace weft::multigrid {

// One more point's norm in a rank's part: a sum of norms, a sum of squares or a maximum. NaN stays.
[[nodiscard]] double accumulate(TemporalNorm kind, double sum, double norm);
// Whether the ranks' parts are to be combined by their maximum instead of their sum.
[[nodiscard]] bool takes_maximum(TemporalNorm kind);
// The norm from all ranks' parts together.
[[nodiscard]] double finish(TemporalNorm kind, double sum);

}  // namespace weft::multigrid
