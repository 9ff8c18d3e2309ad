#include "weft/collective/scatter.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "weft/collective/gather.h"
#include "weft/collective/operator.h"
#include "weft/collective/sizes.h"
#include "weft/collective/tensor.h"
#include "weft/collective/traced.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/parcel.h"

namespace weft::collective {
namespace {

using at::Tensor;

const auto& handle() {
  static const auto op =
      find_operator<Tensor(const Tensor&, std::int64_t, std::int64_t, at::OptionalIntArrayRef, std::int64_t)>(
          "weft::scatter");
  return op;
}

// What the root tells everybody: its label, with the split dimension first, then the sizes.
struct Announcement {
  mpi::Label label;
  Sizes sizes;

  void share(int root, mpi::CommunicatorView channel) {
    mpi::broadcast(&label, sizeof label, mpi::Datatype::kUInt8, root, channel);
    mpi::broadcast(sizes.data(), static_cast<std::int64_t>(sizes.size()), mpi::Datatype::kInt64, root, channel);
  }
};

Tensor communicate(const Tensor& x, std::int64_t dim, std::int64_t root, at::OptionalIntArrayRef given,
                   std::int64_t comm) {
  Negotiation talk("scatter", comm);
  Announcement announced{{}, Sizes(static_cast<std::size_t>(talk.size()))};
  Tensor in;
  talk.check([&] {
    require_rank(root, talk.size(), "root");
    if (talk.rank() != root) return;
    require_communicable(x);
    TORCH_CHECK(x.dim() > 0, "weft: scatter expects a tensor of at least one dimension on the root");
    dim = wrap_dim(x, dim);
    announced.sizes = split_sizes(given, x.size(dim), talk.size());
    in = readable(to_front(x, dim));
    announced.label = mpi::label_for(datatype_of(x.scalar_type()), {in.sizes().data(), in.sizes().size()});
  });
  talk.agree(Signature("scatter").add(root), 0, [&] {
    return "scatter(" + describe(x) + ", dim=" + std::to_string(dim) + ", root=" + std::to_string(root) + ")";
  });
  const mpi::BlockingScope blocking;
  announced.share(static_cast<int>(root), talk.channel());
  tell_gradient_call(announced.sizes);
  const auto& label = announced.label;
  std::vector<std::int64_t> shape(label.sizes().begin(), label.sizes().end());
  shape[0] = announced.sizes[static_cast<std::size_t>(talk.rank())];
  if (dim < 0) dim += static_cast<std::int64_t>(shape.size());
  Tensor out = writable(shape, x.scalar_type() == scalar_type_of(label.type)
                                   ? x
                                   : at::empty({0}, x.options().dtype(scalar_type_of(label.type))));
  mpi::scatter(in.defined() ? in.const_data_ptr() : nullptr, out.mutable_data_ptr(),
               element_counts(announced.sizes, out), label.type, static_cast<int>(root), talk.channel());
  return delivered(from_front(out, dim), x);
}

struct Adjoint {
  std::int64_t dim;
  std::int64_t root;
  Blank input;
  variable_list operator()(OperationNode& node, variable_list&& g) {
    Tensor whole = gather(g[0], node.team(), dim, root);
    return {node.team()->rank() == root ? whole : input.zeros()};
  }
};

Tensor differentiate(const Tensor& x, std::int64_t dim, std::int64_t root, at::OptionalIntArrayRef sizes,
                     std::int64_t comm) {
  const GradientCall call(x);
  const Tensor y = below_autograd(handle(), x, dim, root, sizes, comm);
  // Whether gradients flow is the root's to say; other ranks may hold a placeholder of any type.
  if (call.recording() && torch::autograd::isDifferentiableType(y.scalar_type())) {
    const std::int64_t wrapped = dim < 0 ? dim + y.dim() : dim;
    record("scatter", mpi::Team::find(comm), {x}, {y}, Adjoint{wrapped, root, Blank(x)}, call.on_tape());
  }
  if (call.has_tangent()) set_tangent(y, scatter(tangent_of(x), mpi::Team::find(comm), dim, root, sizes));
  return y;
}

Tensor shape_only(const Tensor& x, std::int64_t dim, std::int64_t /*root*/, at::OptionalIntArrayRef sizes,
                  std::int64_t comm) {
  const Comm team = mpi::Team::find(comm);
  auto shape = x.sym_sizes().vec();
  auto& size = shape[static_cast<std::size_t>(wrap_dim(x, dim))];
  size = traced_piece(size, sizes, *team);
  return at::empty_symint(shape, x.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("scatter(Tensor x, int dim, int root, int[]? sizes, int comm) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("scatter", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("scatter", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("scatter", &Traced<&shape_only>::call); }

}  // namespace

Tensor scatter(const Tensor& x, const Comm& comm, std::int64_t dim, std::int64_t root, at::OptionalIntArrayRef sizes,
               std::source_location where) {
  const mpi::OperationScope scope("scatter", comm.get(), where);
  return handle().call(x, dim, root, sizes, comm->id());
}

}  // namespace weft::collective
