// Completes an mpi::Operation in a test.
#pragma once

#include "tests/eventually.h"
#include "weft/mpi/operation.h"

namespace weft::mpi {

inline void finish(Operation& operation) {
  eventually([&] { return operation.advance(); }, "the end of an operation");
}

}  // namespace weft::mpi
