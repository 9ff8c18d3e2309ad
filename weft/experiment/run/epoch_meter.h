// Measures the speed, the memory and the load of each epoch over all ranks.
#pragma once

#include <chrono>
#include <cstdint>

#include "weft/mpi/communicator.h"

namespace weft::experiment {

struct EpochMeasurements {
  double images_per_second = 0;   // of all ranks together, without evaluations and checkpoints
  double largest_memory_mib = 0;  // the largest resident memory of a rank so far
  double load_imbalance = 1;      // the most busy rank's time without waiting for others, relative to the mean
};

class EpochMeter {
 public:
  void begin_step();
  // `images`: of the batch, over all ranks.
  void end_step(std::int64_t images);
  // Returns the measurements of the steps since the last call. Collective.
  [[nodiscard]] EpochMeasurements finish(const CommunicatorPtr& world);

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin_{};
  std::chrono::nanoseconds waited_before_{0};
  std::chrono::nanoseconds elapsed_{0};
  std::chrono::nanoseconds waited_{0};
  std::int64_t images_ = 0;
};

}  // namespace weft::experiment
