#include <torch/library.h>

#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/pending_collective.h"
#include "weft/collective/nonblocking.h"
#include "weft/collective/reduce.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"

namespace weft::collective {

using at::Tensor;

c10::intrusive_ptr<PendingOperation> ibroadcast(const Tensor& x, const CommunicatorPtr& comm, std::int64_t root,
                                                std::source_location where) {
  const mpi::OperationScope scope("ibroadcast", comm.get(), where);
  const GradientCall gradient(x);
  CollectiveCall call("ibroadcast", comm->id());
  Tensor out;
  call.check([&] {
    require_communicable(x);
    reject_transforms(x, "ibroadcast");
    require_rank(root, call.size(), "root");
    out = writable(x.sizes(), x);
    if (call.rank() == root) out.copy_(x.detach());
  });
  call.agree(Signature("ibroadcast").add(x).add(root), 0,
             [&] { return "ibroadcast(" + describe(x) + ", root=" + std::to_string(root) + ")"; });
  auto pending = c10::make_intrusive<PendingCollective>("ibroadcast", comm);
  pending->request = mpi::Request(keep_alive(out));
  mpi::broadcast_start(out.mutable_data_ptr(), out.numel(), datatype_of(x.scalar_type()), static_cast<int>(root),
                       call.channel(), pending->request);
  pending->result = [out, device = x.device()] { return out.to(device); };
  if (gradient.recording()) {
    pending->record_start(x, x.sizes(), blocking_adjoint([comm, root](const Tensor& g) {
                            return reduce(g, comm, mpi::ReduceOp::kSum, root);
                          }));
  }
  return pending;
}

namespace {

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_pending_operation_class();
  m.def("ibroadcast(Tensor x, int root, int comm) -> __torch__.torch.classes.weft.PendingOperation",
        [](const Tensor& x, std::int64_t root, std::int64_t comm) {
          return ibroadcast(x, Communicator::find(comm), root);
        });
}

}  // namespace
}  // namespace weft::collective
