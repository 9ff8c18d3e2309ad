#include "weft/collective/gather.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "weft/collective/operator.h"
#include "weft/collective/scatter.h"
#include "weft/collective/sizes.h"
#include "weft/collective/tensor.h"
#include "weft/collective/traced.h"
#include "weft/mpi/collectives.h"

namespace weft::collective {
namespace {

using at::Tensor;

const auto& handle() {
  static const auto op = find_operator<Tensor(const Tensor&, std::int64_t, std::int64_t, std::int64_t)>("weft::gather");
  return op;
}

Tensor communicate(const Tensor& x, std::int64_t dim, std::int64_t root, std::int64_t comm) {
  Negotiation talk("gather", comm);
  std::int64_t mine = 0;
  talk.check([&] {
    require_communicable(x);
    require_rank(root, talk.size(), "root");
    dim = wrap_dim(x, dim);
    mine = x.dim() == 0 ? 1 : x.size(dim);
  });
  const auto outcome = talk.agree(Signature("gather").add(x, dim).add(dim).add(root), mine, [&] {
    return "gather(" + describe(x) + ", dim=" + std::to_string(dim) + ", root=" + std::to_string(root) + ")";
  });
  const Sizes sizes = gather_sizes(talk, outcome, mine);
  const Tensor in = readable(to_front(x, dim));
  auto shape = in.sizes().vec();
  shape[0] = talk.rank() == root ? total_of(sizes) : 0;
  Tensor out = writable(shape, x);
  {
    const mpi::BlockingScope blocking;
    mpi::gather(in.const_data_ptr(), out.mutable_data_ptr(), element_counts(sizes, in), datatype_of(x.scalar_type()),
                static_cast<int>(root), talk.channel());
  }
  return delivered(from_front(out, dim), x);
}

struct Adjoint {
  std::int64_t dim;
  std::int64_t root;
  std::optional<Sizes> sizes;
  bool scalar;
  // While tracing, on ranks other than the root: the shape of the root's gradient, from which scatter's follows.
  std::vector<c10::SymInt> root_shape;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    const at::OptionalIntArrayRef pieces = sizes ? at::OptionalIntArrayRef(*sizes) : std::nullopt;
    const Tensor whole = root_shape.empty() ? g[0] : g[0].new_zeros({}).expand_symint(root_shape);
    const Tensor mine = scatter(whole, node.team(), dim, root, pieces);
    return {scalar ? mine.squeeze(0) : mine};
  }
};

Tensor differentiate(const Tensor& x, std::int64_t dim, std::int64_t root, std::int64_t comm) {
  const GradientCall call(x);
  const Tensor y = below_autograd(handle(), x, dim, root, comm);
  if (call.recording()) {
    const Comm team = mpi::Team::find(comm);
    const bool shape_unknown = !call.on_tape() && team->rank() != root;
    Adjoint adjoint{wrap_dim(x, dim), root, call.sizes, x.dim() == 0,
                    shape_unknown ? traced_whole(x, dim, *team) : std::vector<c10::SymInt>()};
    record("gather", team, {x}, {y}, std::move(adjoint), call.on_tape());
  }
  if (call.has_tangent()) set_tangent(y, gather(tangent_of(x), mpi::Team::find(comm), dim, root));
  return y;
}

Tensor shape_only(const Tensor& x, std::int64_t dim, std::int64_t root, std::int64_t comm) {
  const Comm team = mpi::Team::find(comm);
  auto shape = traced_whole(x, dim, *team);
  if (team->rank() != root) shape[static_cast<std::size_t>(wrap_dim(x, dim))] = 0;
  return at::empty_symint(shape, x.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("gather(Tensor x, int dim, int root, int comm) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("gather", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("gather", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("gather", &Traced<&shape_only>::call); }

}  // namespace

Tensor gather(const Tensor& x, const Comm& comm, std::int64_t dim, std::int64_t root, std::source_location where) {
  const mpi::OperationScope scope("gather", comm.get(), where);
  return handle().call(x, dim, root, comm->id());
}

}  // namespace weft::collective
