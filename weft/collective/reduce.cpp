#include "weft/collective/reduce.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/reduction.h"
#include "weft/collective/broadcast.h"
#include "weft/collective/gather.h"
#include "weft/collective/tensor.h"
#include "weft/node/reduce.h"

namespace weft::collective {

using at::Tensor;

namespace reduce_op {

const auto& handle() {
  static const auto op =
      find_operator<Tensor(const Tensor&, std::string_view, std::int64_t, std::int64_t)>("weft::reduce");
  return op;
}

Tensor communicate(const Tensor& x, std::string_view op_name, std::int64_t root, std::int64_t comm) {
  CollectiveCall call("reduce", comm);
  ReduceOp op = ReduceOp::kSum;
  Tensor in, out;
  call.check([&] {
    op = parse_reduce_op(op_name);
    require_reducible(x, op);
    require_rank(root, call.size(), "root");
    in = readable(to_communication_type(x, op));
    out = writable(x.sizes(), in);
  });
  call.agree(Signature("reduce").add(x).add(static_cast<std::int64_t>(op)).add(root), 0, [&] {
    return "reduce(" + describe(x) + ", '" + std::string(op_name) + "', root=" + std::to_string(root) + ")";
  });
  return call.run([&] {
    node::reduce(in.const_data_ptr(), out.mutable_data_ptr(), out.numel(), datatype_of(in.scalar_type()), op,
                 static_cast<int>(root), call.channel(), call.transfer(in, out));
    if (call.rank() != root) out.zero_();
    return finish_reduction(std::move(out), op, call.size(), x.options());
  });
}

// The root reduces with torch, which provides all derivatives. On other ranks the empty tensor sums to zeros.
Tensor through_gather(const Tensor& x, ReduceOp op, std::int64_t root, const CommunicatorPtr& communicator) {
  const Tensor stacked = gather(x.unsqueeze(0), communicator, 0, root);
  return reduce_first_dim(stacked, communicator->rank() == root ? op : ReduceOp::kSum);
}

struct Adjoint {
  ReduceOp op;
  std::int64_t root;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    require_differentiable(op);
    const Tensor whole = broadcast(g[0], node.communicator(), root);
    return {op == ReduceOp::kMean ? whole.div(node.communicator()->size()) : whole};
  }
};

Tensor differentiate(const Tensor& x, std::string_view op_name, std::int64_t root, std::int64_t comm) {
  const auto op = mpi::reduce_op_from(op_name);
  if (op && reduces_with_torch(x, *op)) {
    return through_gather(x, *op, root, Communicator::find(comm));
  }
  const GradientCall call(x, op && has_gradient(x, *op));
  const Tensor y = below_autograd(handle(), x, op_name, root, comm);
  if (call.recording()) record("reduce", Communicator::find(comm), {x}, {y}, Adjoint{*op, root}, call.on_tape());
  if (call.has_tangent()) set_tangent(y, reduce(tangent_of(x), Communicator::find(comm), *op, root));
  return y;
}

Tensor shape_only(const Tensor& x, std::string_view /*op*/, std::int64_t /*root*/, std::int64_t /*comm*/) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("reduce(Tensor x, str op, int root, int comm) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("reduce", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("reduce", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("reduce", &FakeKernel<&shape_only>::call); }

}  // namespace reduce_op

Tensor reduce(const Tensor& x, const CommunicatorPtr& comm, ReduceOp op, std::int64_t root,
              std::source_location where) {
  const mpi::OperationScope scope("reduce", comm.get(), where);
  return reduce_op::handle().call(x, mpi::name_of(op), root, comm->id());
}

}  // namespace weft::collective
