// JoinDummies: makes a tensor depend on others without changing its value, to order communication in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace mpi4torch {

// Returns a tensor with the memory of `loopthrough` that depends on the dummies, whose gradients are zeros;
// `loopthrough` itself if no dummy requires grad. Throws c10::Error if its type is not differentiable.
[[nodiscard]] at::Tensor join_dummies(const at::Tensor& loopthrough, const std::vector<at::Tensor>& dummies);

// Returns zeros that share one element, with strides of 0.
[[nodiscard]] at::Tensor light_zeros(c10::SymIntArrayRef sizes, const at::TensorOptions& options);

}  // namespace mpi4torch
