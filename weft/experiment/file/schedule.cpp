#include <cmath>
#include <numbers>

#include "weft/experiment/file/learning_rule.h"

namespace weft::experiment {

double MomentumSchedule::at(std::int64_t epoch) const {
  if (reversed) {
    if (epoch <= start || epoch > saturate) return saturated;
    return saturated +
           (initial - saturated) * static_cast<double>(epoch - start) / static_cast<double>(saturate - start);
  }
  if (epoch >= saturate) return saturated;
  if (epoch < start) return initial;
  return initial + (saturated - initial) * static_cast<double>(epoch - start) / static_cast<double>(saturate - start);
}

double RateSchedule::at(double epoch, std::int64_t epochs) const {
  switch (kind) {
    case Kind::kConstant:
      return 1;
    case Kind::kExponential:
      return std::pow(gamma, std::floor(epoch));
    case Kind::kCosine:
      return last + (1 - last) * 0.5 * (1 + std::cos(std::numbers::pi * epoch / static_cast<double>(epochs)));
    case Kind::kStep:
      break;
  }
  double factor = 1;
  for (const std::int64_t step : steps) {
    if (epoch >= static_cast<double>(step)) factor *= gamma;
  }
  return factor;
}

}  // namespace weft::experiment
