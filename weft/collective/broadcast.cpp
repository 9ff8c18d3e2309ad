#include "weft/collective/broadcast.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstring>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/autograd/operator.h"
#include "weft/collective/reduce.h"
#include "weft/collective/tensor.h"
#include "weft/node/broadcast.h"

namespace weft::collective {

using at::Tensor;

namespace broadcast_op {

const auto& handle() {
  static const auto op = find_operator<Tensor(const Tensor&, std::int64_t, std::int64_t)>("weft::broadcast");
  return op;
}

Tensor communicate(const Tensor& x, std::int64_t root, std::int64_t comm) {
  CollectiveCall call("broadcast", comm);
  Tensor out;
  call.check([&] {
    require_communicable(x);
    require_rank(root, call.size(), "root");
    out = writable(x.sizes(), x);
    if (call.rank() == root) out.copy_(x.detach());
  });
  call.agree(Signature("broadcast").add(x).add(root), 0,
             [&] { return "broadcast(" + describe(x) + ", root=" + std::to_string(root) + ")"; });
  return call.run([&] {
    node::broadcast(out.mutable_data_ptr(), out.numel(), datatype_of(x.scalar_type()), static_cast<int>(root),
                    call.channel(), call.transfer(out, {}));
    return to_device_of(std::move(out), x);
  });
}

struct Adjoint {
  std::int64_t root;
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    return {reduce(g[0], node.communicator(), mpi::ReduceOp::kSum, root)};
  }
};

Tensor differentiate(const Tensor& x, std::int64_t root, std::int64_t comm) {
  const GradientCall call(x);
  const Tensor y = below_autograd(handle(), x, root, comm);
  if (call.recording()) record("broadcast", Communicator::find(comm), {x}, {y}, Adjoint{root}, call.on_tape());
  if (call.has_tangent()) set_tangent(y, broadcast(tangent_of(x), Communicator::find(comm), root));
  return y;
}

Tensor shape_only(const Tensor& x, std::int64_t /*root*/, std::int64_t /*comm*/) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("broadcast(Tensor x, int root, int comm) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("broadcast", &communicate); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("broadcast", &differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("broadcast", &FakeKernel<&shape_only>::call); }

}  // namespace broadcast_op

Tensor broadcast(const Tensor& x, const CommunicatorPtr& comm, std::int64_t root, std::source_location where) {
  const mpi::OperationScope scope("broadcast", comm.get(), where);
  return broadcast_op::handle().call(x, root, comm->id());
}

}  // namespace weft::collective
