// What can go wrong for a worker that sums through a switch.
#pragma once

#include <stdexcept>

namespace weft::aggregation {

// No result for longer than the worker's timeout.
class SwitchTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// cancel() was called while the operation ran, or before.
class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The switch no longer knows the job and rejoining was not possible.
class JobLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The workers of the job called different operations: other type, other length. All of them get it (extended mode).
class OperationsDiffer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace weft::aggregation
