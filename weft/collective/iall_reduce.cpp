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

c10::intrusive_ptr<PendingOperation> iall_reduce(const Tensor& x, const CommunicatorPtr& comm, ReduceOp op,
                                                 std::source_location where) {
  const mpi::OperationScope scope("iall_reduce", comm.get(), where);
  const GradientCall gradient(x);
  CollectiveCall call("iall_reduce", comm->id());
  call.check([&] {
    require_reducible(x, op);
    reject_transforms(x, "iall_reduce");
    TORCH_CHECK(is_linear(op) || !x.requires_grad(), "weft: iall_reduce differentiates sum and mean only, got '",
                mpi::name_of(op), "'; use all_reduce");
  });
  call.agree(Signature("iall_reduce").add(x).add(static_cast<std::int64_t>(op)), 0,
             [&] { return "iall_reduce(" + describe(x) + ", '" + std::string(mpi::name_of(op)) + "')"; });
  const Tensor in = readable(to_communication_type(x.detach(), op));
  Tensor out = writable(x.sizes(), in);
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

namespace {

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_pending_operation_class();
  m.def("iall_reduce(Tensor x, str op, int comm) -> __torch__.torch.classes.weft.PendingOperation",
        [](const Tensor& x, std::string_view op, std::int64_t comm) {
          return iall_reduce(x, Communicator::find(comm), parse_reduce_op(op));
        });
}

}  // namespace
}  // namespace weft::collective
