// Names, checks and derivatives of reductions, for the operations that reduce.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "weft/mpi/communicator.h"
#include "weft/mpi/reduce_op.h"

namespace weft::collective {

using mpi::ReduceOp;

// Throws (TORCH_CHECK) for an unknown name, with a list of the known ones.
[[nodiscard]] ReduceOp parse_reduce_op(std::string_view name);

// Throws (TORCH_CHECK) unless the reduction supports the tensor's type.
void require_reducible(const at::Tensor& x, ReduceOp op);

// The type in which values are sent and summed. It is float32 for a mean in half precision: the sum may overflow
// although the mean does not, and the result would be rounded twice.
[[nodiscard]] at::ScalarType communication_type(at::ScalarType type, ReduceOp op);
[[nodiscard]] inline at::Tensor to_communication_type(const at::Tensor& x, ReduceOp op) {
  const at::ScalarType type = communication_type(x.scalar_type(), op);
  return type == x.scalar_type() ? x : x.to(type);
}
// Converts the reduced values to the result: divides a mean by `count` and converts to the type and device of `like`.
[[nodiscard]] at::Tensor finish_reduction(at::Tensor reduced, ReduceOp op, std::int64_t count,
                                          const at::TensorOptions& like);

[[nodiscard]] constexpr bool is_linear(ReduceOp op) noexcept { return op == ReduceOp::kSum || op == ReduceOp::kMean; }
[[nodiscard]] constexpr bool is_differentiable(ReduceOp op) noexcept { return op <= ReduceOp::kMax; }

// True if reduce, reduce_scatter and scan gather the tensors and reduce them with torch, to use torch's derivatives:
// prod, min and max of differentiable types. require_reducible() rejects unsupported types.
[[nodiscard]] inline bool reduces_with_torch(const at::Tensor& x, ReduceOp op) {
  return is_differentiable(op) && !is_linear(op) &&
         (x.is_floating_point() || (x.is_complex() && op == ReduceOp::kProd));
}

// Throws (TORCH_CHECK) for logical and bitwise reductions, which have no derivative.
void require_differentiable(ReduceOp op);

// The elementwise derivative of the result by this rank's x: 1 for sum, 1/n for mean, the product of the other ranks'
// values for prod, an equal share for each rank that holds the extremum for min and max. Collective for the last three.
[[nodiscard]] at::Tensor derivative(const at::Tensor& x, const at::Tensor& result, ReduceOp op,
                                    const CommunicatorPtr& comm);

// Reduces a tensor over its first dimension with torch; differentiable, propagates NaN.
[[nodiscard]] at::Tensor reduce_first_dim(const at::Tensor& stacked, ReduceOp op);

}  // namespace weft::collective
