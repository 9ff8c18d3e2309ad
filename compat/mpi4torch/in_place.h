// In-place results for the operations whose names end with an underscore.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/mpi/communicator.h"

namespace mpi4torch {

// Collective. Throws on all ranks if elements of `x` share memory.
void require_writable(const at::Tensor& x, const char* name, const weft::CommunicatorPtr& communicator);

// Copies `y` into the memory of `x` and returns that memory with the autograd history of `y`. A later use of `x` throws
// in backward, unless `x` is a leaf, whose uses cannot be detected.
[[nodiscard]] at::Tensor write_through(const at::Tensor& x, const at::Tensor& y, const char* name,
                                       const weft::CommunicatorPtr& communicator);

}  // namespace mpi4torch
