// Statistics of a solve on one rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace weft::multigrid {

struct Statistics {
  // These members are equal on all ranks.
  int iterations = 0;
  bool converged = false;
  // The residual of each iteration before its coarse-grid correction; empty if it was not computed.
  std::vector<std::optional<double>> residuals;
  // The change of the C-points in the final sweep: the 2-norm over time, divided by the largest norm of a C-point. It
  // estimates the relative error in any setting. Empty without Options::measure_last_change and with a single level.
  std::optional<double> last_change;

  // These members differ between ranks.
  std::vector<std::int64_t> steps;  // step evaluations on each level
  std::int64_t messages_sent = 0;
  std::int64_t bytes_sent = 0;
  double seconds_waiting = 0;

  [[nodiscard]] std::int64_t total_steps() const {
    std::int64_t sum = 0;
    for (const std::int64_t n : steps) sum += n;
    return sum;
  }
};

}  // namespace weft::multigrid
