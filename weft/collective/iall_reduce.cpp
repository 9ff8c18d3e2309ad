#include <c10/util/Exception.h>
#include <torch/library.h>

#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/pending_collective.h"
#include "weft/collective/autograd/reduction.h"
#include "weft/collective/nonblocking.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"

namespace weft::collective {

using at::Tensor;

namespace {

c10::intrusive_ptr<PendingOperation> start(const Tensor& x, const CommunicatorPtr& comm, std::string_view op_name) {
  const auto known = mpi::reduce_op_from(op_name);
  const GradientCall gradient(x, known && is_linear(*known) && has_gradient(x, *known));
  CollectiveCall call("iall_reduce", comm->id());
  ReduceOp op = ReduceOp::kSum;
  Tensor in, out;
  call.check([&] {
    op = parse_reduce_op(op_name);
    require_reducible(x, op);
    reject_transforms(x, "iall_reduce");
    TORCH_CHECK(is_linear(op) || !x.requires_grad(), "weft: iall_reduce differentiates sum and mean only, got '",
                op_name, "'; use all_reduce");
    in = readable(to_communication_type(x.detach(), op));
    out = writable(x.sizes(), in);
  });
  call.agree(Signature("iall_reduce").add(x).add(static_cast<std::int64_t>(op)), 0,
             [&] { return "iall_reduce(" + describe(x) + ", '" + std::string(op_name) + "')"; });
  auto pending = c10::make_intrusive<PendingCollective>("iall_reduce", comm);
  pending->request = mpi::Request(keep_alive(in, out));
  mpi::all_reduce_start(in.const_data_ptr(), out.mutable_data_ptr(), out.numel(), datatype_of(in.scalar_type()), op,
                        call.channel(), pending->request);
  pending->result = [out, op, like = x.options(), size = call.size()] { return finish_reduction(out, op, size, like); };
  if (gradient.recording()) {
    pending->record_start(x, x.sizes(),
                          overlapping_adjoint([comm, op](const Tensor& g) { return iall_reduce(g, comm, op); }));
  }
  return pending;
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_pending_operation_class();
  m.def("iall_reduce(Tensor x, str op, int comm) -> __torch__.torch.classes.weft.PendingOperation",
        [](const Tensor& x, std::string_view op, std::int64_t comm) { return start(x, Communicator::find(comm), op); });
}

}  // namespace

c10::intrusive_ptr<PendingOperation> iall_reduce(const Tensor& x, const CommunicatorPtr& comm, ReduceOp op,
                                                 std::source_location where) {
  const mpi::OperationScope scope("iall_reduce", comm.get(), where);
  return start(x, comm, mpi::name_of(op));
}

}  // namespace weft::collective
