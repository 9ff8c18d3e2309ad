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

// The type in which values travel and are added up: float32 for a mean of half precision, whose sum may overflow though
// the mean does not, and which would be rounded twice.
[[nodiscard]] at::ScalarType travels_as(at::ScalarType type, ReduceOp op);
[[nodiscard]] inline at::Tensor travelling(const at::Tensor& x, ReduceOp op) {
  const at::ScalarType type = travels_as(x.scalar_type(), op);
  return type == x.scalar_type() ? x : x.to(type);
}
// Makes what travelled the result: the mean of `count` ranks' values where that was asked for, in the type and on the
// device of `like`.
[[nodiscard]] at::Tensor finished(at::Tensor reduced, ReduceOp op, std::int64_t count, const at::TensorOptions& like);

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
