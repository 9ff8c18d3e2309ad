#include "weft/collective/all_reduce.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/reduction.h"
#include "weft/collective/tensor.h"
#include "weft/node/all_reduce.h"

namespace weft::collective {

using at::Tensor;

namespace all_reduce_op {

const auto& handle() {
  static const auto op = find_operator<Tensor(const Tensor&, std::string_view, std::int64_t)>("weft::all_reduce");
  return op;
}

Tensor communicate(const Tensor& x, std::string_view op_name, std::int64_t comm) {
  CollectiveCall call("all_reduce", comm);
  ReduceOp op = ReduceOp::kSum;
  Tensor in, out;
  call.check([&] {
    op = parse_reduce_op(op_name);
    require_reducible(x, op);
    in = readable(to_communication_type(x, op));
    out = writable(x.sizes(), in);
  });
  call.agree(Signature("all_reduce").add(x).add(static_cast<std::int64_t>(op)), 0,
             [&] { return "all_reduce(" + describe(x) + ", '" + std::string(op_name) + "')"; });
  return call.run([&] {
    node::all_reduce(in.const_data_ptr(), out.mutable_data_ptr(), out.numel(), datatype_of(in.scalar_type()), op,
                     call.channel(), call.transfer(in, out));
    return finish_reduction(std::move(out), op, call.size(), x.options());
  });
}

struct LinearAdjoint {
  ReduceOp op;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    require_differentiable(op);
    return {all_reduce(g[0], node.communicator(), op)};  // sum and mean are self-adjoint
  }
};

struct NonlinearAdjoint {
  ReduceOp op;
  torch::autograd::SavedVariable x;
  torch::autograd::SavedVariable y;

  variable_list operator()(OperationNode& node, variable_list&& g) {
    const Tensor weight = derivative(x.unpack(), y.unpack(node.getptr()), op, node.communicator());
    return {weight.conj().mul(all_reduce(g[0], node.communicator(), ReduceOp::kSum))};
  }
  void release() {
    x.reset_data();
    y.reset_data();
  }
};

void record_all_reduce(const GradientCall& call, const CommunicatorPtr& communicator, const Tensor& x, const Tensor& y,
                       ReduceOp op) {
  if (is_linear(op) || !is_differentiable(op)) {
    record("all_reduce", communicator, {x}, {y}, LinearAdjoint{op}, call.on_tape());
    return;
  }
  TORCH_CHECK(call.on_tape(), "weft: all_reduce with '", mpi::name_of(op),
              "' and gradients cannot be traced; use sum or mean");
  auto node = record("all_reduce", communicator, {x}, {y}, NonlinearAdjoint{op, {}, {}});
  node->adjoint_.x = torch::autograd::SavedVariable(x, /*is_output=*/false);
  node->adjoint_.y = torch::autograd::SavedVariable(y, /*is_output=*/true);
}

Tensor tangent_of_result(const Tensor& x, const Tensor& y, ReduceOp op, const CommunicatorPtr& communicator) {
  if (is_linear(op)) return all_reduce(tangent_of(x), communicator, op);
  // The derivative depends on x without its tangent, but keeps the other derivatives for those of second order.
  const Tensor weight = derivative(x._fw_primal(/*level=*/0), y, op, communicator);
  return all_reduce(weight.mul(tangent_of(x)), communicator, ReduceOp::kSum);
}

Tensor differentiate(const Tensor& x, std::string_view op_name, std::int64_t comm) {
  const auto known = mpi::reduce_op_from(op_name);
  const GradientCall call(x, known && has_gradient(x, *known));
  const Tensor y = below_autograd(handle(), x, op_name, comm);
  if (!call.recording() && !call.has_tangent()) return y;
  const ReduceOp op = *known;
  const CommunicatorPtr communicator = Communicator::find(comm);
  if (call.recording()) record_all_reduce(call, communicator, x, y, op);
  if (call.has_tangent()) set_tangent(y, tangent_of_result(x, y, op, communicator));
  return y;
}

Tensor shape_only(const Tensor& x, std::string_view /*op*/, std::int64_t /*comm*/) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("all_reduce(Tensor x, str op, int comm) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("all_reduce", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("all_reduce", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("all_reduce", &FakeKernel<&shape_only>::call); }

}  // namespace all_reduce_op

Tensor all_reduce(const Tensor& x, const CommunicatorPtr& comm, ReduceOp op, std::source_location where) {
  const mpi::OperationScope scope("all_reduce", comm.get(), where);
  return all_reduce_op::handle().call(x, mpi::name_of(op), comm->id());
}

}  // namespace weft::collective
