// Truncated: a message was longer than its receive buffer, the one MPI error that a receiver can handle itself.
#pragma once

#include "weft/mpi/error.h"

namespace weft::mpi {

// The message is consumed; later messages are not affected.
class Truncated : public MpiError {
 public:
  using MpiError::MpiError;
};

}  // namespace weft::mpi
