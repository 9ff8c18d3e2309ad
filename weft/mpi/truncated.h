// The one MPI error that a receiver can answer for itself: a message longer than the memory for it.
#pragma once

#include "weft/mpi/error.h"

namespace weft::mpi {

// The message is consumed; what follows it is not affected.
class Truncated : public MpiError {
 public:
  using MpiError::MpiError;
};

}  // namespace weft::mpi
