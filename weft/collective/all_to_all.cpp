#include "weft/collective/all_to_all.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/autograd/sizes.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/node/all_to_all.h"

namespace weft::collective {

using at::Tensor;

namespace all_to_all_op {

const auto& handle() {
  static const auto op = find_operator<Tensor(const Tensor&, std::int64_t, std::int64_t, at::OptionalIntArrayRef,
                                              std::int64_t, TracedTotal)>("weft::all_to_all");
  return op;
}

// By rank: the size of the received piece along the split dimension, and the size of the sender's tensor along the
// concatenation dimension.
struct PieceSizes {
  Sizes split;
  Sizes concat;
};

PieceSizes exchange_piece_sizes(const Sizes& mine, std::int64_t concat_size, const CollectiveCall& call) {
  const auto ranks = static_cast<std::size_t>(call.size());
  Sizes sent(2 * ranks);
  Sizes got(2 * ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    sent[2 * i] = mine[i];
    sent[2 * i + 1] = concat_size;
  }
  const mpi::BlockingScope blocking;
  mpi::all_to_all(sent.data(), got.data(), 2, mpi::Datatype::kInt64, call.channel());
  PieceSizes result{Sizes(ranks), Sizes(ranks)};
  for (std::size_t i = 0; i < ranks; ++i) {
    result.split[i] = got[2 * i];
    result.concat[i] = got[2 * i + 1];
  }
  return result;
}

std::string describe_pieces(const PieceSizes& pieces) {
  std::ostringstream text;
  text << "the received pieces have sizes " << at::IntArrayRef(pieces.split) << " along the split dimension";
  return text.str();
}

Tensor join(const Tensor& packed, const PieceSizes& pieces, std::int64_t split_dim, std::int64_t concat_dim,
            const std::vector<std::int64_t>& shape, const Sizes& counts) {
  std::vector<Tensor> parts;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto front = shape;  // shape of a received piece: split dimension first
    front[static_cast<std::size_t>(split_dim)] = pieces.split[i];
    if (split_dim != concat_dim) front[static_cast<std::size_t>(concat_dim)] = pieces.concat[i];
    std::rotate(front.begin(), front.begin() + split_dim, front.begin() + split_dim + 1);
    parts.push_back(packed.narrow(0, first, counts[i]).view(front).movedim(0, split_dim));
    first += counts[i];
  }
  return at::cat(parts, concat_dim);
}

Tensor communicate(const Tensor& x, std::int64_t split_dim, std::int64_t concat_dim, at::OptionalIntArrayRef given,
                   std::int64_t comm, TracedTotal /*total*/) {
  CollectiveCall call("all_to_all", comm);
  Sizes sizes;
  Tensor in;
  call.check([&] {
    require_communicable(x);
    TORCH_CHECK(x.dim() > 0, "weft: all_to_all expects a tensor of at least one dimension");
    split_dim = wrap_dim(x, split_dim);
    concat_dim = wrap_dim(x, concat_dim);
    sizes = split_sizes(given, x.size(split_dim), call.size());
    in = readable(to_front(x, split_dim));
  });
  Signature signature("all_to_all");
  signature.add(static_cast<std::int64_t>(x.scalar_type())).add(x.dim()).add(split_dim).add(concat_dim);
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (i != split_dim && i != concat_dim) signature.add(x.size(i));
  }
  call.agree(signature, 0, [&] {
    return "all_to_all(" + describe(x) + ", split_dim=" + std::to_string(split_dim) +
           ", concat_dim=" + std::to_string(concat_dim) + ")";
  });
  const bool same_dim = split_dim == concat_dim;
  const PieceSizes pieces = exchange_piece_sizes(sizes, x.size(concat_dim), call);
  const std::int64_t others = [&] {  // elements per index of the split and concat dimensions
    std::int64_t product = 1;
    for (std::int64_t i = 0; i < x.dim(); ++i) product *= i == split_dim || i == concat_dim ? 1 : x.size(i);
    return product;
  }();
  Sizes counts(pieces.split);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] *= others * (same_dim ? 1 : pieces.concat[i]);
  Tensor packed;
  call.confirm(
      [&] {
        TORCH_CHECK(same_dim || mpi::all_equal(pieces.split), "weft: ", describe_pieces(pieces),
                    ", expected equal sizes");
        packed = writable({total_of(counts)}, x);
      },
      [&] { return "all_to_all: " + describe_pieces(pieces); });
  return call.run([&] {
    node::all_to_all(in.const_data_ptr(), element_counts(sizes, in), packed.mutable_data_ptr(), counts,
                     datatype_of(x.scalar_type()), call.channel(), call.transfer(in, packed));
    save_sizes_for_backward(same_dim ? pieces.split : pieces.concat);
    return to_device_of(join(packed, pieces, split_dim, concat_dim, x.sizes().vec(), counts), x);
  });
}

struct Adjoint {
  std::int64_t split_dim;
  std::int64_t concat_dim;
  std::optional<Sizes> received;
  TracedTotal total;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    const at::OptionalIntArrayRef sizes = received ? at::OptionalIntArrayRef(*received) : std::nullopt;
    return {all_to_all(g[0], node.communicator(), concat_dim, split_dim, sizes, total)};
  }
};

Tensor differentiate(const Tensor& x, std::int64_t split_dim, std::int64_t concat_dim, at::OptionalIntArrayRef sizes,
                     std::int64_t comm, TracedTotal total) {
  const GradientCall call(x);
  const Tensor y = below_autograd(handle(), x, split_dim, concat_dim, sizes, comm, total);
  if (call.recording()) {
    record("all_to_all", Communicator::find(comm), {x}, {y},
           Adjoint{wrap_dim(x, split_dim), wrap_dim(x, concat_dim), call.sizes(), traced_total(call, x, split_dim)},
           call.on_tape());
  }
  if (call.has_tangent()) {
    set_tangent(y, all_to_all(tangent_of(x), Communicator::find(comm), split_dim, concat_dim, sizes, total));
  }
  return y;
}

Tensor shape_only(const Tensor& x, std::int64_t split_dim, std::int64_t concat_dim, at::OptionalIntArrayRef sizes,
                  std::int64_t comm, TracedTotal total) {
  reject_meta_tensor(x, comm);
  const CommunicatorPtr communicator = Communicator::find(comm);
  auto shape = x.sym_sizes().vec();
  auto& split = shape[static_cast<std::size_t>(wrap_dim(x, split_dim))];
  split = traced_piece(split, sizes, *communicator);
  auto& concat = shape[static_cast<std::size_t>(wrap_dim(x, concat_dim))];
  concat = total.value_or(concat * communicator->size());
  return at::empty_symint(shape, x.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "all_to_all(Tensor x, int split_dim, int concat_dim, int[]? split_sizes, int comm, SymInt? traced_total=None) -> "
      "Tensor");
}
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("all_to_all", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("all_to_all", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("all_to_all", &shape_only); }

}  // namespace all_to_all_op

Tensor all_to_all(const Tensor& x, const CommunicatorPtr& comm, std::int64_t split_dim, std::int64_t concat_dim,
                  at::OptionalIntArrayRef split_sizes, const TracedTotal& traced_total, std::source_location where) {
  const mpi::OperationScope scope("all_to_all", comm.get(), where);
  return all_to_all_op::handle().call(x, split_dim, concat_dim, split_sizes, comm->id(), traced_total);
}

}  // namespace weft::collective
