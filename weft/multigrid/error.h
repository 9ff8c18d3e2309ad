// A solve that failed, told alike on all ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "weft/mpi/error.h"

namespace weft::multigrid {

// Where something went wrong.
struct Fault {
  int rank = 0;
  int level = 0;
  std::int64_t index = 0;  // the step from this point of the level
  std::string activity;    // "step", "pack", ...
  std::string text;        // what the exception said
};

// On the rank where it happened the original exception is nested inside: nested_ptr() or std::rethrow_if_nested.
class SolveError : public mpi::SharedFailure, public std::nested_exception {
 public:
  SolveError(const Fault& fault, const std::string& also);
  [[nodiscard]] const Fault& fault() const noexcept { return fault_; }
  [[nodiscard]] int rank() const noexcept { return fault_.rank; }

 private:
  Fault fault_;
};

}  // namespace weft::multigrid
