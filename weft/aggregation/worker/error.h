// Errors of a worker that sums through a switch.
#pragma once

#include <stdexcept>

namespace weft::aggregation {

// No result arrived within the worker's timeout.
class SwitchTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// cancel() was called before or during the operation.
class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The switch no longer knows the job, and rejoining failed.
class JobLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The workers of the job called operations of different type, length or reduction. All workers throw it (extended mode
// only).
class OperationsDiffer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace weft::aggregation
