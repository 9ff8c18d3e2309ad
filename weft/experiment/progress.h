// Where training is. With the parameters and the optimiser's state this is all that has to be kept. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace weft::experiment {

struct Progress {
  std::int64_t stage = 0;
  std::int64_t epoch = 0;  // of the stage
  std::int64_t batch = 0;  // of the epoch: the next one
  std::int64_t step = 0;   // batches so far
  double cost_sum = 0;     // of the epoch's batches so far
  std::int64_t mistakes = 0;
  std::int64_t images = 0;
};

// As a checkpoint's index has them; whole numbers up to 2^53 are exact.
[[nodiscard]] std::map<std::string, double> numbers_of(const Progress& progress);
// Throws CheckpointError naming a number that is absent or below 0.
[[nodiscard]] Progress progress_from(const std::map<std::string, double>& numbers);

}  // namespace weft::experiment
