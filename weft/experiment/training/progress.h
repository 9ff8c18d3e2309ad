// The position in training. Together with parameters and optimizer state, it is the whole state of a run. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace weft::experiment {

struct Progress {
  std::int64_t stage = 0;
  std::int64_t epoch = 0;  // current epoch within the stage
  std::int64_t batch = 0;  // next batch of the epoch
  std::int64_t step = 0;   // finished batches of the whole training
  double cost_sum = 0;     // sum over the finished batches of the epoch
  std::int64_t mistakes = 0;
  std::int64_t images = 0;
};

// Converts to the numbers in a checkpoint's index. Integers up to 2^53 are exact.
[[nodiscard]] std::map<std::string, double> numbers_of(const Progress& progress);
// Throws CheckpointError if a number is missing or negative.
[[nodiscard]] Progress progress_from(const std::map<std::string, double>& numbers);

}  // namespace weft::experiment
