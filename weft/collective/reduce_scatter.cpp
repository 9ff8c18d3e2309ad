#include "weft/collective/reduce_scatter.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <sstream>

#include "weft/collective/all_gather.h"
#include "weft/collective/all_to_all.h"
#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/reduction.h"
#include "weft/collective/autograd/sizes.h"
#include "weft/collective/tensor.h"
#include "weft/node/reduce_scatter.h"

namespace weft::collective {

using at::Tensor;

namespace reduce_scatter_op {

const auto& handle() {
  static const auto op =
      find_operator<Tensor(const Tensor&, std::string_view, std::int64_t, at::OptionalIntArrayRef, std::int64_t)>(
          "weft::reduce_scatter");
  return op;
}

Tensor communicate(const Tensor& x, std::string_view op_name, std::int64_t dim, at::OptionalIntArrayRef given,
                   std::int64_t comm) {
  CollectiveCall call("reduce_scatter", comm);
  ReduceOp op = ReduceOp::kSum;
  Sizes sizes;
  Tensor in, out;
  call.check([&] {
    op = parse_reduce_op(op_name);
    require_reducible(x, op);
    TORCH_CHECK(x.dim() > 0, "weft: reduce_scatter expects a tensor of at least one dimension");
    dim = wrap_dim(x, dim);
    sizes = split_sizes(given, x.size(dim), call.size());
    in = readable(to_communication_type(to_front(x, dim), op));
    out = writable(with_rows(in, sizes[static_cast<std::size_t>(call.rank())]), in);
  });
  call.agree(Signature("reduce_scatter").add(x).add(static_cast<std::int64_t>(op)).add(dim).add(sizes), 0, [&] {
    std::ostringstream text;
    text << "reduce_scatter(" << describe(x) << ", '" << op_name << "', dim=" << dim
         << ", sizes=" << at::IntArrayRef(sizes) << ")";
    return text.str();
  });
  return call.run([&] {
    node::reduce_scatter(in.const_data_ptr(), out.mutable_data_ptr(), element_counts(sizes, in),
                         datatype_of(in.scalar_type()), op, call.channel(), call.transfer(in, out));
    return finish_reduction(from_front(out, dim), op, call.size(), x.options());
  });
}

// Each rank receives the pieces that it owns and reduces them with torch, which provides all derivatives.
Tensor through_all_to_all(const Tensor& x, ReduceOp op, std::int64_t dim, at::OptionalIntArrayRef given,
                          const CommunicatorPtr& communicator) {
  const Tensor stacked = all_to_all(x.unsqueeze(0), communicator, wrap_dim(x, dim) + 1, 0, given);
  return reduce_first_dim(stacked, op);
}

struct Adjoint {
  ReduceOp op;
  std::int64_t dim;
  TracedTotal total;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    require_differentiable(op);
    Tensor whole = all_gather(g[0], node.communicator(), dim, total);
    return {op == ReduceOp::kMean ? whole.div(node.communicator()->size()) : whole};
  }
};

Tensor differentiate(const Tensor& x, std::string_view op_name, std::int64_t dim, at::OptionalIntArrayRef sizes,
                     std::int64_t comm) {
  const auto op = mpi::reduce_op_from(op_name);
  // communicate() reports an invalid dimension to all ranks.
  if (op && reduces_with_torch(x, *op) && x.dim() > 0 && dim >= -x.dim() && dim < x.dim()) {
    return through_all_to_all(x, *op, dim, sizes, Communicator::find(comm));
  }
  const GradientCall call(x, op && has_gradient(x, *op));
  const Tensor y = below_autograd(handle(), x, op_name, dim, sizes, comm);
  if (call.recording()) {
    record("reduce_scatter", Communicator::find(comm), {x}, {y},
           Adjoint{*op, wrap_dim(x, dim), traced_total(call, x, dim)}, call.on_tape());
  }
  if (call.has_tangent()) set_tangent(y, reduce_scatter(tangent_of(x), Communicator::find(comm), *op, dim, sizes));
  return y;
}

Tensor shape_only(const Tensor& x, std::string_view /*op*/, std::int64_t dim, at::OptionalIntArrayRef sizes,
                  std::int64_t comm) {
  const CommunicatorPtr communicator = Communicator::find(comm);
  auto shape = x.sym_sizes().vec();
  auto& size = shape[static_cast<std::size_t>(wrap_dim(x, dim))];
  size = traced_piece(size, sizes, *communicator);
  return at::empty_symint(shape, x.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("reduce_scatter(Tensor x, str op, int dim, int[]? sizes, int comm) -> Tensor");
}
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("reduce_scatter", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("reduce_scatter", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("reduce_scatter", &FakeKernel<&shape_only>::call); }

}  // namespace reduce_scatter_op

Tensor reduce_scatter(const Tensor& x, const CommunicatorPtr& comm, ReduceOp op, std::int64_t dim,
                      at::OptionalIntArrayRef sizes, std::source_location where) {
  const mpi::OperationScope scope("reduce_scatter", comm.get(), where);
  return reduce_scatter_op::handle().call(x, mpi::name_of(op), dim, sizes, comm->id());
}

}  // namespace weft::collective
