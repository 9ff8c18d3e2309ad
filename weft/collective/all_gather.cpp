#include "weft/collective/all_gather.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/sizes.h"
#include "weft/collective/reduce_scatter.h"
#include "weft/collective/tensor.h"
#include "weft/node/all_gather.h"

namespace weft::collective {

using at::Tensor;

namespace all_gather_op {

const auto& handle() {
  static const auto op =
      find_operator<Tensor(const Tensor&, std::int64_t, std::int64_t, TracedTotal)>("weft::all_gather");
  return op;
}

Tensor communicate(const Tensor& x, std::int64_t dim, std::int64_t comm, TracedTotal /*total*/) {
  CollectiveCall call("all_gather", comm);
  std::int64_t mine = 0;
  Tensor in;
  call.check([&] {
    require_communicable(x);
    dim = wrap_dim(x, dim);
    mine = x.dim() == 0 ? 1 : x.size(dim);
    in = readable(to_front(x, dim));
  });
  GatherTarget target(call, in, mine);
  const auto text = [&] { return "all_gather(" + describe(x) + ", dim=" + std::to_string(dim) + ")"; };
  const auto outcome = call.agree(Signature("all_gather").add(x, dim).add(dim), mine, text);
  const Sizes sizes = gather_sizes(call, outcome, mine);
  return call.run([&] {
    Tensor out = target.allocate(outcome, sizes, text);
    node::all_gather(in.const_data_ptr(), out.mutable_data_ptr(), element_counts(sizes, in),
                     datatype_of(x.scalar_type()), call.channel(), call.transfer(in, out));
    return to_device_of(from_front(out, dim), x);
  });
}

struct Adjoint {
  std::int64_t dim;
  std::optional<Sizes> sizes;
  bool scalar;  // the input was 0-dimensional
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    const at::OptionalIntArrayRef pieces = sizes ? at::OptionalIntArrayRef(*sizes) : std::nullopt;
    const Tensor mine = reduce_scatter(g[0], node.communicator(), mpi::ReduceOp::kSum, dim, pieces);
    return {scalar ? mine.squeeze(0) : mine};
  }
};

Tensor differentiate(const Tensor& x, std::int64_t dim, std::int64_t comm, TracedTotal total) {
  const GradientCall call(x);
  const Tensor y = below_autograd(handle(), x, dim, comm, total);
  if (call.recording()) {
    record("all_gather", Communicator::find(comm), {x}, {y}, Adjoint{wrap_dim(x, dim), call.sizes(), x.dim() == 0},
           call.on_tape());
  }
  if (call.has_tangent()) set_tangent(y, all_gather(tangent_of(x), Communicator::find(comm), dim, total));
  return y;
}

Tensor shape_only(const Tensor& x, std::int64_t dim, std::int64_t comm, TracedTotal total) {
  reject_meta_tensor(x, comm);
  return at::empty_symint(traced_whole(x, dim, *Communicator::find(comm), total), x.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("all_gather(Tensor x, int dim, int comm, SymInt? traced_total=None) -> Tensor");
}
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("all_gather", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("all_gather", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("all_gather", &shape_only); }

}  // namespace all_gather_op

Tensor all_gather(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dim, const TracedTotal& traced_total,
                  std::source_location where) {
  const mpi::OperationScope scope("all_gather", comm.get(), where);
  return all_gather_op::handle().call(x, dim, comm->id(), traced_total);
}

}  // namespace weft::collective
