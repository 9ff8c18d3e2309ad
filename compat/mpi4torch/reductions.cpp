#include "compat/mpi4torch/reductions.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "compat/mpi4torch/check_on_all_ranks.h"
#include "compat/mpi4torch/in_place.h"
#include "compat/mpi4torch/pieces.h"
#include "weft/collective/all_reduce.h"
#include "weft/collective/autograd/node.h"
#include "weft/collective/autograd/reduction.h"
#include "weft/collective/autograd/tape.h"
#include "weft/collective/broadcast.h"
#include "weft/collective/reduce.h"
#include "weft/collective/reduce_scatter.h"
#include "weft/collective/scan.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::collective::OperationNode;
using weft::collective::variable_list;
using weft::mpi::ReduceOp;

constexpr ReduceOp kReductions[] = {ReduceOp::kMax,        ReduceOp::kMin,    ReduceOp::kSum,       ReduceOp::kProd,
                                    ReduceOp::kLogicalAnd, ReduceOp::kBitAnd, ReduceOp::kLogicalOr, ReduceOp::kBitOr,
                                    ReduceOp::kLogicalXor, ReduceOp::kBitXor};
constexpr std::int64_t kMinLoc = 10;
constexpr std::int64_t kMaxLoc = 11;

struct NoAdjoint {
  ReduceOp op;
  variable_list operator()(OperationNode& /*node*/, variable_list&& /*gradients*/) const {
    TORCH_CHECK(false, "mpi4torch: This backward operation is currently unimplemented! The reduction '",
                weft::mpi::name_of(op), "' has no derivative.");
  }
};

// Calls run(x, op). If the reduction has no derivative, backward throws.
template <class Run>
Tensor reduced(const char* name, const Tensor& x, std::int64_t number, const CommunicatorPtr& communicator, Run&& run) {
  const weft::mpi::OperationScope scope(name, communicator.get());
  const weft::collective::TapeScope no_tape(false);
  const ReduceOp op = reduction(number, name, communicator);
  if (weft::collective::is_differentiable(op)) return run(x, op);
  Tensor y = run(x.detach(), op);
  if (x.requires_grad() && c10::GradMode::is_enabled()) {
    weft::collective::record(name, communicator, {x}, {y}, NoAdjoint{op}, /*tape=*/false);
  }
  return y;
}

}  // namespace

ReduceOp reduction(std::int64_t op, const char* name, const CommunicatorPtr& communicator) {
  check_on_all_ranks(name, communicator, [&] {
    TORCH_CHECK(op != kMinLoc && op != kMaxLoc, "mpi4torch: Collective operation not supported! MPI_MINLOC and ",
                "MPI_MAXLOC reduce pairs of a value and a rank, and a tensor holds no pairs. Use MPI_MIN or MPI_MAX.");
    TORCH_CHECK(op >= 0 && op < kMinLoc, "mpi4torch: Collective operation not supported! Expected one of the ",
                "constants MPI_MAX (0) to MPI_BXOR (9), got ", op);
  });
  return kReductions[op];
}

Tensor allreduce(const Tensor& x, std::int64_t op, const CommunicatorPtr& communicator) {
  return reduced("Allreduce", x, op, communicator,
                 [&](const Tensor& in, ReduceOp how) { return weft::collective::all_reduce(in, communicator, how); });
}

Tensor reduce_in_place(const Tensor& x, std::int64_t op, std::int64_t root, const CommunicatorPtr& communicator) {
  require_writable(x, "Reduce_", communicator);
  const Tensor y = reduced("Reduce_", x, op, communicator, [&](const Tensor& in, ReduceOp how) {
    return weft::collective::reduce(in, communicator, how, root);
  });
  return write_through(x, y, "Reduce_", communicator);
}

Tensor broadcast_in_place(const Tensor& x, std::int64_t root, const CommunicatorPtr& communicator) {
  const weft::mpi::OperationScope scope("Bcast_", communicator.get());
  const weft::collective::TapeScope no_tape(false);
  require_writable(x, "Bcast_", communicator);
  return write_through(x, weft::collective::broadcast(x, communicator, root), "Bcast_", communicator);
}

Tensor reduce_scatter(const Tensor& x, std::int64_t op, std::int64_t axis, std::int64_t numelem,
                      const CommunicatorPtr& communicator) {
  return reduced("Reduce_scatter", x, op, communicator, [&](const Tensor& in, ReduceOp how) {
    const auto sizes = numelem_of_all_ranks("Reduce_scatter", numelem, communicator);
    return weft::collective::reduce_scatter(in, communicator, how, axis, sizes);
  });
}

Tensor scan(const Tensor& x, std::int64_t op, const CommunicatorPtr& communicator) {
  return reduced("Scan", x, op, communicator,
                 [&](const Tensor& in, ReduceOp how) { return weft::collective::scan(in, communicator, how); });
}

}  // namespace mpi4torch
