// mpi4torch's torch class MPI_Comm_Wrapper and its functions, under mpi4torch's names.
#include <torch/custom_class.h>
#include <torch/library.h>

#include "compat/mpi4torch/communicator.h"
#include "compat/mpi4torch/pieces.h"
#include "compat/mpi4torch/point_to_point.h"
#include "compat/mpi4torch/reductions.h"
#include "weft/collective/barrier.h"
#include "weft/mpi/options.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using Int = std::int64_t;

void deactivate_cuda_aware_mpi_support() {
  auto options = weft::mpi::options();
  options.cuda_aware = false;
  weft::mpi::set_options(options);
}

void define_collectives(torch::class_<MpiCommWrapper>& type) {
  type.def("Allreduce",
           [](const CommPtr& self, const Tensor& x, Int op) { return allreduce(x, op, self->communicator()); })
      .def("Bcast_", [](const CommPtr& self, const Tensor& x,
                        Int root) { return broadcast_in_place(x, root, self->communicator()); })
      .def("Reduce_", [](const CommPtr& self, const Tensor& x, Int op,
                         Int root) { return reduce_in_place(x, op, root, self->communicator()); })
      .def("Gather", [](const CommPtr& self, const Tensor& x, Int axis,
                        Int root) { return gather(x, axis, root, self->communicator()); })
      .def("Allgather",
           [](const CommPtr& self, const Tensor& x, Int axis) { return allgather(x, axis, self->communicator()); })
      .def("Scatter", [](const CommPtr& self, const Tensor& x, Int axis, Int numelem,
                         Int root) { return scatter(x, axis, numelem, root, self->communicator()); })
      .def("Alltoall",
           [](const CommPtr& self, const Tensor& x, Int gather_axis, Int scatter_axis, Int numelem) {
             return alltoall(x, gather_axis, scatter_axis, numelem, self->communicator());
           })
      .def("Reduce_scatter", [](const CommPtr& self, const Tensor& x, Int op, Int axis,
                                Int numelem) { return reduce_scatter(x, op, axis, numelem, self->communicator()); })
      .def("Scan", [](const CommPtr& self, const Tensor& x, Int op) { return scan(x, op, self->communicator()); })
      .def("Iallreduce",
           [](const CommPtr& self, const Tensor& x, Int op) { return iallreduce(x, op, self->communicator()); })
      .def("Barrier", [](const CommPtr& self) { weft::collective::barrier(self->communicator()); });
}

void define_messages(torch::class_<MpiCommWrapper>& type) {
  type.def("Isend", [](const CommPtr& self, const Tensor& x, Int dest,
                       Int tag) { return isend(x, dest, tag, self->communicator()); })
      .def("Irecv", [](const CommPtr& self, const Tensor& x, Int source,
                       Int tag) { return irecv(x, source, tag, self->communicator()); })
      .def("Send", [](const CommPtr& self, const Tensor& x, Int dest,
                      Int tag) { return send(x, dest, tag, self->communicator()); })
      .def("Recv", [](const CommPtr& self, const Tensor& x, Int source,
                      Int tag) { return recv(x, source, tag, self->communicator()); })
      .def("Sendrecv",
           [](const CommPtr& self, const Tensor& x, Int dest, Int send_tag, const Tensor& buffer, Int source,
              Int recv_tag) { return sendrecv(x, dest, send_tag, buffer, source, recv_tag, self->communicator()); })
      .def("Wait", [](const CommPtr& /*self*/, const Handle& handle) { return wait(handle); });
}

TORCH_LIBRARY(mpi4torch, m) {
  auto type = m.class_<MpiCommWrapper>("MPI_Comm_Wrapper");
  type.def("GetRank", [](const CommPtr& self) { return self->rank(); })
      .def("GetSize", [](const CommPtr& self) { return self->size(); })
      .def("Split", [](const CommPtr& self, Int color, Int key) { return self->split(color, key); })
      .def("Dup", [](const CommPtr& self) { return self->dup(); })
      .def_pickle([](const CommPtr& self) { return self->pickled(); },
                  [](const std::string& state) { return MpiCommWrapper::unpickled(state); });
  define_collectives(type);
  define_messages(type);

  m.def("communicator(int id) -> __torch__.torch.classes.mpi4torch.MPI_Comm_Wrapper",
        [](Int id) { return c10::make_intrusive<MpiCommWrapper>(weft::Communicator::find(id)); });
  m.def("pickle(__torch__.torch.classes.mpi4torch.MPI_Comm_Wrapper comm) -> str",
        [](const CommPtr& comm) { return comm->pickled(); });
  m.def("unpickle(str state) -> __torch__.torch.classes.mpi4torch.MPI_Comm_Wrapper",
        [](std::string_view state) { return MpiCommWrapper::unpickled(std::string(state)); });
  m.def("deactivate_cuda_aware_mpi_support() -> ()", &deactivate_cuda_aware_mpi_support);
  m.def("any_source() -> int", [] { return static_cast<Int>(MPI_ANY_SOURCE); });
  m.def("any_tag() -> int", [] { return static_cast<Int>(MPI_ANY_TAG); });
  m.def("proc_null() -> int", [] { return static_cast<Int>(MPI_PROC_NULL); });
}

}  // namespace
}  // namespace mpi4torch
