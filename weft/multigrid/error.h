// SolveError: a failed solve, thrown with the same text on all ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "weft/mpi/error.h"

namespace weft::multigrid {

// The location and text of a failure.
struct Fault {
  int rank = 0;
  int level = 0;
  std::int64_t index = 0;  // point of the level; start of a step
  std::string activity;    // "step", "pack", ...
  std::string text;        // the text of the exception

  // Whether `index` is the start of a step instead of a point.
  [[nodiscard]] bool is_step() const { return activity == "step" || activity == "residual"; }
};

// On the failing rank it nests the original exception: use nested_ptr() or std::rethrow_if_nested.
class SolveError : public mpi::SharedFailure, public std::nested_exception {
 public:
  SolveError(const Fault& fault, const std::string& also);
  [[nodiscard]] const Fault& fault() const noexcept { return fault_; }
  [[nodiscard]] int rank() const noexcept { return fault_.rank; }

 private:
  Fault fault_;
};

}  // namespace weft::multigrid
