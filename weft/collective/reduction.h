// What the reducing operations share: the names of reductions, their checks, and their derivative on one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "weft/collective/comm.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

using mpi::ReduceOp;

// Throws (TORCH_CHECK) for an unknown name, listing the known ones.
[[nodiscard]] ReduceOp parse_reduce_op(std::string_view name);

// Throws (TORCH_CHECK) unless the reduction is defined on the tensor's type.
void require_reducible(const at::Tensor& x, ReduceOp op);

[[nodiscard]] constexpr bool is_linear(ReduceOp op) noexcept { return op == ReduceOp::kSum || op == ReduceOp::kMean; }
[[nodiscard]] constexpr bool is_differentiable(ReduceOp op) noexcept { return op <= ReduceOp::kMax; }

// Whether reduce, reduce_scatter and scan bring the tensors together and reduce with torch, whose derivatives then
// hold: prod, min and max where gradients can flow. What the type does not support stays for require_reducible to
// refuse.
[[nodiscard]] inline bool reduces_with_torch(const at::Tensor& x, ReduceOp op) {
  return is_differentiable(op) && !is_linear(op) &&
         (x.is_floating_point() || (x.is_complex() && op == ReduceOp::kProd));
}

// Throws (TORCH_CHECK) for logical and bitwise reductions, whose backward does not exist.
void require_differentiable(ReduceOp op);

// d result / d x of this rank, elementwise: 1 for sum, 1/n for mean, the product of the other ranks' values for prod,
// an equal share among the winners for min and max. Collective for prod, min and max.
[[nodiscard]] at::Tensor derivative(const at::Tensor& x, const at::Tensor& result, ReduceOp op, const Comm& comm);

// Reduces a tensor over its first dimension with torch's own operations; differentiable, NaN travels.
[[nodiscard]] at::Tensor reduce_first_dim(const at::Tensor& stacked, ReduceOp op);

}  // namespace weft::collective
