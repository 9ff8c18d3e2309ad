// Results in the memory of the argument, for the operations whose names end in an underscore.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/collective/operator.h"

namespace mpi4torch {

// Throws on all ranks unless every element of `x` has memory of its own.
void require_writable(const at::Tensor& x, const char* name, const weft::collective::Comm& team);

// Copies `y` into the memory of `x` and returns that memory with the history of `y`. A further use of `x` throws in
// backward, unless `x` is a leaf: those cannot be watched.
[[nodiscard]] at::Tensor write_through(const at::Tensor& x, const at::Tensor& y, const char* name,
                                       const weft::collective::Comm& team);

}  // namespace mpi4torch
