// The exception for checkpoints that are missing, damaged or from another experiment.
#pragma once

#include <stdexcept>

namespace weft::experiment {

class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The end of messages about damaged files.
constexpr const char* kDamageAdvice = "; remove the checkpoint's folder to resume from the one before it";

}  // namespace weft::experiment
