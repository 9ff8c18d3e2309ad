#include "weft/collective/autograd/torch_communicator.h"

#include <torch/custom_class.h>
#include <torch/library.h>

#include <sstream>
#include <tuple>
#include <vector>

#include "weft/collective/autograd/call.h"

namespace weft::collective {
namespace {

TorchCommunicatorPtr wrap(mpi::UniqueComm comm) {
  auto communicator = Communicator::adopt(std::move(comm));
  return communicator ? c10::make_intrusive<TorchCommunicator>(std::move(communicator)) : TorchCommunicatorPtr();
}

const CommunicatorPtr& usable(const TorchCommunicatorPtr& self) {
  self->communicator()->enter();
  return self->communicator();
}

// Makes the ranks agree that all of them create a communicator with the same arguments; otherwise MPI would hang.
// Returns the MPI communicator to create it from.
mpi::CommView agreed_origin(const TorchCommunicatorPtr& self, const char* name, at::IntArrayRef arguments = {}) {
  CollectiveCall call(name, self->communicator()->id());
  call.agree(Signature(name).add(arguments), 0, [&] {
    std::ostringstream text;
    text << name << "(" << arguments << ")";
    return text.str();
  });
  return self->communicator()->origin();
}

TorchCommunicatorPtr split(const TorchCommunicatorPtr& self, std::int64_t color, std::int64_t key) {
  return wrap(agreed_origin(self, "split").split(static_cast<int>(color), static_cast<int>(key)));
}

TorchCommunicatorPtr cart(const TorchCommunicatorPtr& self, const std::vector<std::int64_t>& extents,
                          const c10::List<bool>& periodic) {
  const std::vector<int> narrow(extents.begin(), extents.end());
  return wrap(agreed_origin(self, "cart", extents).cart(narrow, periodic.vec()));
}

std::tuple<std::vector<std::int64_t>, c10::List<bool>, std::vector<std::int64_t>> grid(
    const TorchCommunicatorPtr& self) {
  const auto grid = usable(self)->origin().cart_topology();
  c10::List<bool> periodic;
  for (const bool wraps : grid.periodic) periodic.push_back(wraps);
  return {{grid.extents.begin(), grid.extents.end()}, periodic, {grid.coordinates.begin(), grid.coordinates.end()}};
}

}  // namespace

TorchCommunicatorPtr world_communicator() { return c10::make_intrusive<TorchCommunicator>(Communicator::world()); }

TorchCommunicatorPtr communicator_from_fortran(std::int64_t handle) {
  return wrap(mpi::UniqueComm::from_fortran(static_cast<int>(handle)));
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.class_<TorchCommunicator>("Communicator")
      .def("id", [](const TorchCommunicatorPtr& self) { return self->communicator()->id(); })
      .def("rank",
           [](const TorchCommunicatorPtr& self) { return static_cast<std::int64_t>(self->communicator()->rank()); })
      .def("size",
           [](const TorchCommunicatorPtr& self) { return static_cast<std::int64_t>(self->communicator()->size()); })
      .def("name", [](const TorchCommunicatorPtr& self) { return self->communicator()->name(); })
      .def("closed", [](const TorchCommunicatorPtr& self) { return self->communicator()->closed(); })
      .def("dup", [](const TorchCommunicatorPtr& self) { return wrap(agreed_origin(self, "dup").dup()); })
      .def("split", &split)
      .def("split_shared",
           [](const TorchCommunicatorPtr& self) { return wrap(agreed_origin(self, "split_shared").split_shared()); })
      .def("cart", &cart)
      .def("grid", &grid)
      .def("is_cart", [](const TorchCommunicatorPtr& self) { return usable(self)->origin().is_cart(); })
      .def("free", [](const TorchCommunicatorPtr& self) { self->communicator()->close(); });
  m.def("world() -> __torch__.torch.classes.weft.Communicator", &world_communicator);
  m.def("from_fortran(int handle) -> __torch__.torch.classes.weft.Communicator", &communicator_from_fortran);
}

}  // namespace weft::collective
