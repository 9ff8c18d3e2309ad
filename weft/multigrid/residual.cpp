#include "weft/multigrid/residual.h"

#include <cmath>

namespace weft::multigrid {

double accumulate(TemporalNorm kind, double sum, double norm) {
  switch (kind) {
    case TemporalNorm::kOne:
      return sum + norm;
    case TemporalNorm::kTwo:
      return sum + norm * norm;
    case TemporalNorm::kInfinity:
      break;
  }
  return std::isnan(norm) || norm > sum ? norm : sum;
}

bool takes_maximum(TemporalNorm kind) { return kind == TemporalNorm::kInfinity; }

double finish(TemporalNorm kind, double sum) { return kind == TemporalNorm::kTwo ? std::sqrt(sum) : sum; }

}  // namespace weft::multigrid
