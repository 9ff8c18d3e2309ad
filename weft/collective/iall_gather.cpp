#include <torch/library.h>

#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/pending_collective.h"
#include "weft/collective/autograd/sizes.h"
#include "weft/collective/nonblocking.h"
#include "weft/collective/reduce_scatter.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"

namespace weft::collective {

using at::Tensor;

c10::intrusive_ptr<PendingOperation> iall_gather(const Tensor& x, const CommunicatorPtr& comm, std::int64_t dim,
                                                 std::source_location where) {
  const mpi::OperationScope scope("iall_gather", comm.get(), where);
  const GradientCall gradient(x);
  CollectiveCall call("iall_gather", comm->id());
  std::int64_t mine = 0;
  Tensor in;
  call.check([&] {
    require_communicable(x);
    reject_transforms(x, "iall_gather");
    dim = wrap_dim(x, dim);
    mine = x.dim() == 0 ? 1 : x.size(dim);
    in = readable(to_front(x.detach(), dim));
  });
  GatherTarget target(call, in, mine);
  const auto text = [&] { return "iall_gather(" + describe(x) + ", dim=" + std::to_string(dim) + ")"; };
  const auto outcome = call.agree(Signature("iall_gather").add(x, dim).add(dim), mine, text);
  const Sizes sizes = gather_sizes(call, outcome, mine);
  const Tensor out = target.allocate(outcome, sizes, text);
  auto pending = c10::make_intrusive<PendingCollective>("iall_gather", comm);
  pending->request = mpi::Request(keep_alive(in, out));
  mpi::all_gather_start(in.const_data_ptr(), out.mutable_data_ptr(), element_counts(sizes, in),
                        datatype_of(x.scalar_type()), call.channel(), pending->request);
  pending->result = [out, dim, device = x.device()] { return from_front(out, dim).to(device); };
  if (gradient.recording()) {
    const bool scalar = x.dim() == 0;
    auto result_sizes = scalar ? out.sizes().vec() : x.sizes().vec();
    result_sizes[static_cast<std::size_t>(dim)] = total_of(sizes);
    pending->record_start(x, result_sizes, blocking_adjoint([comm, dim, sizes, scalar](const Tensor& g) {
                            const Tensor piece = reduce_scatter(g, comm, mpi::ReduceOp::kSum, dim, sizes);
                            return scalar ? piece.squeeze(0) : piece;
                          }));
  }
  return pending;
}

namespace {

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_pending_operation_class();
  m.def("iall_gather(Tensor x, int dim, int comm) -> __torch__.torch.classes.weft.PendingOperation",
        [](const Tensor& x, std::int64_t dim, std::int64_t comm) {
          return iall_gather(x, Communicator::find(comm), dim);
        });
}

}  // namespace
}  // namespace weft::collective
