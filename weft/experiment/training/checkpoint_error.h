// The exception for checkpoints that are missing, damaged or from another experiment.
#pragma once

#include <stdexcept>

namespace weft::experiment {

class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace weft::experiment
