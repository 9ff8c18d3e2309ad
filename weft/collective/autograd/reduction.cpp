#include "weft/collective/autograd/reduction.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/prod.h>
#include <c10/util/Exception.h>

#include "weft/collective/all_gather.h"
#include "weft/collective/all_reduce.h"
#include "weft/collective/tensor.h"

namespace weft::collective {
namespace {

at::Tensor product_of_others(const at::Tensor& x, const CommunicatorPtr& comm) {
  const at::Tensor all = all_gather(x.unsqueeze(0), comm, 0);
  const std::int64_t rank = comm->rank();
  const at::Tensor others = at::cat({all.narrow(0, 0, rank), all.narrow(0, rank + 1, comm->size() - rank - 1)}, 0);
  return others.prod(0);  // unlike a division, correct for zeros and in every derivative
}

at::Tensor share_of_extremum(const at::Tensor& x, const at::Tensor& result, const CommunicatorPtr& comm) {
  const at::Tensor holds = x.eq(result).logical_or(at::isnan(x).logical_and(at::isnan(result))).detach();
  const at::Tensor count = all_reduce(holds.to(at::kFloat), comm, ReduceOp::kSum);
  return holds.to(x.scalar_type()).div(count.to(x.scalar_type()));
}

}  // namespace

ReduceOp parse_reduce_op(std::string_view name) {
  const auto op = mpi::reduce_op_from(name);
  TORCH_CHECK(op.has_value(), "weft: unknown reduction '", name,
              "'; expected sum, mean, prod, min, max, land, lor, lxor, band, bor or bxor");
  return *op;
}

void require_reducible(const at::Tensor& x, ReduceOp op) {
  require_communicable(x);
  const mpi::Datatype type = datatype_of(x.scalar_type());
  TORCH_CHECK(mpi::supports(op, type), "weft: reduction '", mpi::name_of(op), "' is not defined on ",
              mpi::name_of(type), op == ReduceOp::kMean ? "; convert to a floating type first" : "");
}

at::ScalarType communication_type(at::ScalarType type, ReduceOp op) {
  return mpi::accumulates_in_float32(op, datatype_of(type)) ? at::kFloat : type;
}

at::Tensor to_communication_type(const at::Tensor& x, ReduceOp op) {
  const bool logical = op == ReduceOp::kLogicalAnd || op == ReduceOp::kLogicalOr || op == ReduceOp::kLogicalXor;
  if (logical && x.scalar_type() != at::kBool) return x.ne(0).to(x.scalar_type());
  const at::ScalarType type = communication_type(x.scalar_type(), op);
  return type == x.scalar_type() ? x : x.to(type);
}

at::Tensor finish_reduction(at::Tensor reduced, ReduceOp op, std::int64_t count, const at::TensorOptions& like) {
  if (op == ReduceOp::kMean) reduced.div_(count);
  if (reduced.device() == like.device() && reduced.dtype() == like.dtype()) return reduced;
  return reduced.to(like.device(), like.dtype());
}

void require_differentiable(ReduceOp op) {
  TORCH_CHECK(is_differentiable(op), "weft: reduction '", mpi::name_of(op),
              "' has no derivative; detach its input, or use sum, mean, prod, min or max");
}

at::Tensor derivative(const at::Tensor& x, const at::Tensor& result, ReduceOp op, const CommunicatorPtr& comm) {
  require_differentiable(op);
  switch (op) {
    case ReduceOp::kSum:
      return at::ones_like(x);
    case ReduceOp::kMean:
      return at::ones_like(x).div(comm->size());
    case ReduceOp::kProd:
      return product_of_others(x, comm);
    default:
      return share_of_extremum(x, result, comm);
  }
}

at::Tensor reduce_first_dim(const at::Tensor& stacked, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMean:
      return stacked.mean(0);
    case ReduceOp::kProd:
      return at::prod(stacked, 0, /*keepdim=*/false, communication_type(stacked.scalar_type(), op))
          .to(stacked.scalar_type());
    case ReduceOp::kMin:
      return at::amin(stacked, 0);
    case ReduceOp::kMax:
      return at::amax(stacked, 0);
    default:
      return stacked.sum(0, /*keepdim=*/false, stacked.scalar_type());
  }
}

}  // namespace weft::collective
