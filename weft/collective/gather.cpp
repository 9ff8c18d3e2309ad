#include "weft/collective/gather.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/sizes.h"
#include "weft/collective/scatter.h"
#include "weft/collective/tensor.h"
#include "weft/node/gather.h"

namespace weft::collective {

using at::Tensor;

namespace gather_op {

const auto& handle() {
  static const auto op =
      find_operator<Tensor(const Tensor&, std::int64_t, std::int64_t, std::int64_t, TracedTotal)>("weft::gather");
  return op;
}

Tensor communicate(const Tensor& x, std::int64_t dim, std::int64_t root, std::int64_t comm, TracedTotal /*total*/) {
  CollectiveCall call("gather", comm);
  std::int64_t mine = 0;
  Tensor in;
  call.check([&] {
    require_communicable(x);
    require_rank(root, call.size(), "root");
    dim = wrap_dim(x, dim);
    mine = x.dim() == 0 ? 1 : x.size(dim);
    in = readable(to_front(x, dim));
  });
  GatherTarget target(call, in, mine, root);
  const auto text = [&] {
    return "gather(" + describe(x) + ", dim=" + std::to_string(dim) + ", root=" + std::to_string(root) + ")";
  };
  const auto outcome = call.agree(Signature("gather").add(x, dim).add(dim).add(root), mine, text);
  const Sizes sizes = gather_sizes(call, outcome, mine);
  return call.run([&] {
    Tensor out = target.allocate(outcome, sizes, text);
    node::gather(in.const_data_ptr(), out.mutable_data_ptr(), element_counts(sizes, in), datatype_of(x.scalar_type()),
                 static_cast<int>(root), call.channel(), call.transfer(in, out));
    return to_device_of(from_front(out, dim), x);
  });
}

struct Adjoint {
  std::int64_t dim;
  std::int64_t root;
  std::optional<Sizes> sizes;
  bool scalar;
  // While tracing, on ranks other than the root: the shape of the root's gradient, which determines the piece.
  std::vector<c10::SymInt> root_shape;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    const at::OptionalIntArrayRef pieces = sizes ? at::OptionalIntArrayRef(*sizes) : std::nullopt;
    const Tensor whole = root_shape.empty() ? g[0] : g[0].new_zeros({}).expand_symint(root_shape);
    const Tensor mine = scatter(whole, node.communicator(), dim, root, pieces);
    return {scalar ? mine.squeeze(0) : mine};
  }
};

Tensor differentiate(const Tensor& x, std::int64_t dim, std::int64_t root, std::int64_t comm, TracedTotal total) {
  const GradientCall call(x);
  const Tensor y = below_autograd(handle(), x, dim, root, comm, total);
  if (call.recording()) {
    const CommunicatorPtr communicator = Communicator::find(comm);
    const bool shape_unknown = !call.on_tape() && communicator->rank() != root;
    Adjoint adjoint{wrap_dim(x, dim), root, call.sizes(), x.dim() == 0,
                    shape_unknown ? traced_whole(x, dim, *communicator, total) : std::vector<c10::SymInt>()};
    record("gather", communicator, {x}, {y}, std::move(adjoint), call.on_tape());
  }
  if (call.has_tangent()) set_tangent(y, gather(tangent_of(x), Communicator::find(comm), dim, root, total));
  return y;
}

Tensor shape_only(const Tensor& x, std::int64_t dim, std::int64_t root, std::int64_t comm, TracedTotal total) {
  reject_meta_tensor(x, comm);
  const CommunicatorPtr communicator = Communicator::find(comm);
  auto shape = traced_whole(x, dim, *communicator, total);
  if (communicator->rank() != root) shape[static_cast<std::size_t>(wrap_dim(x, dim))] = 0;
  return at::empty_symint(shape, x.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("gather(Tensor x, int dim, int root, int comm, SymInt? traced_total=None) -> Tensor");
}
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("gather", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("gather", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("gather", &shape_only); }

}  // namespace gather_op

Tensor gather(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dim, std::int64_t root,
              const TracedTotal& traced_total, std::source_location where) {
  const mpi::OperationScope scope("gather", comm.get(), where);
  return gather_op::handle().call(x, dim, root, comm->id(), traced_total);
}

}  // namespace weft::collective
