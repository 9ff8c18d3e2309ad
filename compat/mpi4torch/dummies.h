// JoinDummies: makes a tensor depend on others without changing it, which orders communication in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace mpi4torch {

// `loopthrough` itself where no dummy requires grad; else a tensor of the same memory that depends on the dummies,
// whose gradients are zeros.
[[nodiscard]] at::Tensor join_dummies(const at::Tensor& loopthrough, const std::vector<at::Tensor>& dummies);

// Zeros that cost no memory: one element seen through strides of 0.
[[nodiscard]] at::Tensor light_zeros(c10::SymIntArrayRef sizes, const at::TensorOptions& options);

}  // namespace mpi4torch
