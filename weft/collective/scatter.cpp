#include "weft/collective/scatter.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/sizes.h"
#include "weft/collective/gather.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/message/parcel.h"
#include "weft/node/scatter.h"

namespace weft::collective {

using at::Tensor;

namespace scatter_op {

const auto& handle() {
  static const auto op =
      find_operator<Tensor(const Tensor&, std::int64_t, std::int64_t, at::OptionalIntArrayRef, std::int64_t)>(
          "weft::scatter");
  return op;
}

// The root broadcasts its label, with the split dimension first, the split dimension and the sizes.
struct ScatterHeader {
  mpi::Label label;
  std::int64_t dim = 0;
  Sizes sizes;

  void broadcast_from(int root, mpi::CommView channel) {
    const mpi::BlockingScope blocking;
    mpi::broadcast(&label, sizeof label, mpi::Datatype::kUInt8, root, channel);
    mpi::broadcast(&dim, 1, mpi::Datatype::kInt64, root, channel);
    mpi::broadcast(sizes.data(), static_cast<std::int64_t>(sizes.size()), mpi::Datatype::kInt64, root, channel);
  }
};

Tensor communicate(const Tensor& x, std::int64_t dim, std::int64_t root, at::OptionalIntArrayRef given,
                   std::int64_t comm) {
  CollectiveCall call("scatter", comm);
  ScatterHeader header{{}, 0, Sizes(static_cast<std::size_t>(call.size()))};
  Tensor in;
  call.check([&] {
    require_rank(root, call.size(), "root");
    if (call.rank() != root) return;
    require_communicable(x);
    TORCH_CHECK(x.dim() > 0, "weft: scatter expects a tensor of at least one dimension on the root");
    dim = wrap_dim(x, dim);
    header.dim = dim;
    header.sizes = split_sizes(given, x.size(dim), call.size());
    in = readable(to_front(x, dim));
    header.label = mpi::label_for(datatype_of(x.scalar_type()), {in.sizes().data(), in.sizes().size()});
  });
  const auto text = [&] {
    return "scatter(" + describe(x) + ", dim=" + std::to_string(dim) + ", root=" + std::to_string(root) + ")";
  };
  call.agree(Signature("scatter").add(root), 0, text);
  header.broadcast_from(static_cast<int>(root), call.channel());
  save_sizes_for_backward(header.sizes);
  const auto& label = header.label;
  Tensor out;
  call.confirm(
      [&] {
        std::vector<std::int64_t> shape(label.sizes().begin(), label.sizes().end());
        shape[0] = header.sizes[static_cast<std::size_t>(call.rank())];
        const std::int64_t wrapped = dim < 0 ? dim + label.dims : dim;
        TORCH_CHECK(wrapped == header.dim, "weft: the root splits dimension ", header.dim,
                    ", but this rank passed dim=", dim);
        out = writable(shape, x.scalar_type() == scalar_type_of(label.type)
                                  ? x
                                  : at::empty({0}, x.options().dtype(scalar_type_of(label.type))));
      },
      text);
  return call.run([&] {
    node::scatter(in.defined() ? in.const_data_ptr() : nullptr, out.mutable_data_ptr(),
                  element_counts(header.sizes, out), label.type, static_cast<int>(root), call.channel(),
                  call.transfer(in, out));
    return to_device_of(from_front(out, header.dim), x);
  });
}

struct Adjoint {
  std::int64_t dim;
  std::int64_t root;
  TensorSpec input;
  TracedTotal total;
  variable_list operator()(OperationNode& node, variable_list&& g) {
    Tensor whole = gather(g[0], node.communicator(), dim, root, total);
    return {node.communicator()->rank() == root ? whole : input.zeros()};
  }
};

Tensor differentiate(const Tensor& x, std::int64_t dim, std::int64_t root, at::OptionalIntArrayRef sizes,
                     std::int64_t comm) {
  const GradientCall call(x, /*differentiable=*/true);
  const Tensor y = below_autograd(handle(), x, dim, root, sizes, comm);
  // The root's type decides whether to record; other ranks may pass a placeholder of any type.
  if (call.recording() && torch::autograd::isDifferentiableType(y.scalar_type())) {
    const std::int64_t wrapped = dim < 0 ? dim + y.dim() : dim;
    record("scatter", Communicator::find(comm), {x}, {y},
           Adjoint{wrapped, root, TensorSpec(x), traced_total(call, x, wrapped)}, call.on_tape());
  }
  if (call.has_tangent()) set_tangent(y, scatter(tangent_of(x), Communicator::find(comm), dim, root, sizes));
  return y;
}

Tensor shape_only(const Tensor& x, std::int64_t dim, std::int64_t /*root*/, at::OptionalIntArrayRef sizes,
                  std::int64_t comm) {
  const CommunicatorPtr communicator = Communicator::find(comm);
  auto shape = x.sym_sizes().vec();
  auto& size = shape[static_cast<std::size_t>(wrap_dim(x, dim))];
  size = traced_piece(size, sizes, *communicator);
  return at::empty_symint(shape, x.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("scatter(Tensor x, int dim, int root, int[]? sizes, int comm) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("scatter", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("scatter", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("scatter", &FakeKernel<&shape_only>::call); }

}  // namespace scatter_op

Tensor scatter(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dim, std::int64_t root,
               at::OptionalIntArrayRef sizes, std::source_location where) {
  const mpi::OperationScope scope("scatter", comm.get(), where);
  return scatter_op::handle().call(x, dim, root, sizes, comm->id());
}

}  // namespace weft::collective
