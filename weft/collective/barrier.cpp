#include "weft/collective/barrier.h"

#include <torch/library.h>

#include "weft/collective/autograd/call.h"

namespace weft::collective {

void barrier(const CommunicatorPtr& comm, std::source_location where) {
  const mpi::OperationScope scope("barrier", comm.get(), where);
  CollectiveCall call("barrier", comm->id());
  call.agree(Signature("barrier"), 0, [] { return std::string("barrier()"); });
  // The agreement is already a barrier; MPI_Barrier is needed only if Options::check is off.
  const mpi::BlockingScope blocking;
  call.channel().barrier();
}

namespace {

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("barrier(int comm) -> ()", [](std::int64_t comm) { barrier(Communicator::find(comm)); });
}

}  // namespace
}  // namespace weft::collective
