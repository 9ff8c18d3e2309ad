#include "weft/collective/scan.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "weft/collective/all_gather.h"
#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/reduction.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"

namespace weft::collective {

using at::Tensor;

namespace scan_op {

const auto& handle() {
  static const auto op = find_operator<Tensor(const Tensor&, std::string_view, bool, bool, std::int64_t)>("weft::scan");
  return op;
}

int position(const Communicator& communicator, bool reverse) noexcept {
  return reverse ? communicator.size() - 1 - communicator.rank() : communicator.rank();
}

// The neutral element of the reduction.
Tensor neutral(const Tensor& x, ReduceOp op) {
  if (op == ReduceOp::kProd || op == ReduceOp::kLogicalAnd) return at::full_like(x, 1);
  if (op == ReduceOp::kBitAnd) return at::full_like(x, x.scalar_type() == at::kBool ? 1 : -1);
  if (op != ReduceOp::kMin && op != ReduceOp::kMax) return at::full_like(x, 0);
  const double sign = op == ReduceOp::kMin ? 1 : -1;
  return at::full_like(x, sign * std::numeric_limits<double>::infinity());
}

Tensor communicate(const Tensor& x, std::string_view op_name, bool exclusive, bool reverse, std::int64_t comm) {
  CollectiveCall call(exclusive ? "exscan" : "scan", comm);
  ReduceOp op = ReduceOp::kSum;
  Tensor in, out;
  call.check([&] {
    op = parse_reduce_op(op_name);
    require_reducible(x, op);
    TORCH_CHECK(!exclusive || x.is_floating_point() || (op != ReduceOp::kMin && op != ReduceOp::kMax),
                "weft: exscan with '", op_name,
                "' requires a floating-point type, because the first rank gets infinity; got ", x.scalar_type());
    in = readable(to_communication_type(x, op));
    out = writable(x.sizes(), in);
  });
  call.agree(Signature("scan").add(x).add(static_cast<std::int64_t>(op)).add(exclusive).add(reverse), 0, [&] {
    return std::string(exclusive ? "exscan(" : "scan(") + describe(x) + ", '" + std::string(op_name) + "'" +
           (reverse ? ", reverse)" : ")");
  });
  return call.run([&] {
    const auto channel = reverse ? call.communicator()->reversed(call.direction()) : call.channel();
    const int before = position(*call.communicator(), reverse);
    {
      const mpi::BlockingScope blocking;
      const auto run = exclusive ? &mpi::exscan : &mpi::scan;
      run(in.const_data_ptr(), out.mutable_data_ptr(), out.numel(), datatype_of(in.scalar_type()), op, channel);
    }
    if (exclusive && before == 0) out.copy_(neutral(out, op));
    return finish_reduction(std::move(out), op, std::max(exclusive ? before : before + 1, 1), x.options());
  });
}

// Gathers the tensors of all ranks and reduces them with torch, which provides all derivatives.
Tensor through_all_gather(const Tensor& x, ReduceOp op, bool exclusive, bool reverse,
                          const CommunicatorPtr& communicator) {
  const Tensor all = all_gather(x.unsqueeze(0), communicator, 0);
  const std::int64_t count = position(*communicator, reverse) + (exclusive ? 0 : 1);
  const Tensor mine = all.narrow(0, reverse ? communicator->size() - count : 0, count);
  // Adding the empty sum keeps the gather in the graph.
  return count == 0 ? neutral(x, op).add(reduce_first_dim(mine, ReduceOp::kSum)) : reduce_first_dim(mine, op);
}

struct Adjoint {
  ReduceOp op;
  bool exclusive;
  bool reverse;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    require_differentiable(op);
    Tensor gradient = g[0];
    const int reduced = position(*node.communicator(), reverse) + (exclusive ? 0 : 1);
    if (op == ReduceOp::kMean && reduced > 0) gradient = gradient.div(reduced);
    const auto run = exclusive ? &exscan : &scan;
    return {run(gradient, node.communicator(), ReduceOp::kSum, !reverse, std::source_location::current())};
  }
};

Tensor differentiate(const Tensor& x, std::string_view op_name, bool exclusive, bool reverse, std::int64_t comm) {
  const auto op = mpi::reduce_op_from(op_name);
  const CommunicatorPtr communicator = Communicator::find(comm);
  if (op && reduces_with_torch(x, *op)) {
    return through_all_gather(x, *op, exclusive, reverse, communicator);
  }
  const GradientCall call(x, op && has_gradient(x, *op));
  const Tensor y = below_autograd(handle(), x, op_name, exclusive, reverse, comm);
  const char* name = exclusive ? "exscan" : "scan";
  if (call.recording()) record(name, communicator, {x}, {y}, Adjoint{*op, exclusive, reverse}, call.on_tape());
  if (call.has_tangent()) set_tangent(y, (exclusive ? &exscan : &scan)(tangent_of(x), communicator, *op, reverse, {}));
  return y;
}

Tensor shape_only(const Tensor& x, std::string_view /*op*/, bool /*exclusive*/, bool /*reverse*/,
                  std::int64_t /*comm*/) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("scan(Tensor x, str op, bool exclusive, bool reverse, int comm) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("scan", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("scan", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("scan", &FakeKernel<&shape_only>::call); }

}  // namespace scan_op

Tensor scan(const Tensor& x, const CommunicatorPtr& comm, ReduceOp op, bool reverse, std::source_location where) {
  const mpi::OperationScope scope("scan", comm.get(), where);
  return scan_op::handle().call(x, mpi::name_of(op), /*exclusive=*/false, reverse, comm->id());
}

Tensor exscan(const Tensor& x, const CommunicatorPtr& comm, ReduceOp op, bool reverse, std::source_location where) {
  const mpi::OperationScope scope("exscan", comm.get(), where);
  return scan_op::handle().call(x, mpi::name_of(op), /*exclusive=*/true, reverse, comm->id());
}

}  // namespace weft::collective
