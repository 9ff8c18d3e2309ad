#include "weft/collective/autograd/torch_communicator.h"

#include <torch/custom_class.h>
#include <torch/library.h>

#include <optional>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>
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

// Makes the ranks agree that all of them create a communicator with the same arguments; MPI itself would hang if not.
// `checks` throws if this rank's arguments are invalid. Returns the MPI communicator to create it from.
template <class Checks>
mpi::CommView agreed_origin(std::int64_t comm, const char* name, const std::string& arguments, Checks&& checks) {
  CollectiveCall call(name, comm);
  call.check(checks);
  call.agree(Signature(name).add(arguments), 0, [&] { return std::string(name) + "(" + arguments + ")"; });
  return call.communicator()->origin();
}
mpi::CommView agreed_origin(std::int64_t comm, const char* name) {
  return agreed_origin(comm, name, "", [] {});
}

int to_int(std::int64_t value, const char* what) {
  TORCH_CHECK_VALUE(std::in_range<int>(value), "weft: expected a ", what, " that fits a C int, got ", value);
  return static_cast<int>(value);
}

// A negative color stands for none.
std::optional<TorchCommunicatorPtr> split(std::int64_t color, std::int64_t key, std::int64_t comm) {
  int narrow_color = 0;
  int narrow_key = 0;
  const auto origin = agreed_origin(comm, "split", "", [&] {
    narrow_color = to_int(color, "color");
    narrow_key = to_int(key, "key");
  });
  auto part = wrap(origin.split(narrow_color, narrow_key));
  return part ? std::optional(std::move(part)) : std::nullopt;
}

TorchCommunicatorPtr cart(at::IntArrayRef extents, const c10::List<bool>& periodic, std::int64_t comm) {
  std::vector<int> narrow;
  std::ostringstream arguments;
  arguments << extents << ", periodic=" << periodic.vec();
  const auto origin = agreed_origin(comm, "cart", arguments.str(), [&] {
    for (const std::int64_t extent : extents) narrow.push_back(to_int(extent, "extent"));
  });
  return wrap(origin.cart(narrow, periodic.vec()));
}

// Collective. Reports invalid arguments of this rank to the other ranks, which call the operation `name`.
void reject(std::string_view name, std::string_view problem, std::int64_t comm) {
  agreed_origin(comm, std::string(name).c_str(), "", [&] { TORCH_CHECK_VALUE(false, problem); });
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
      .def("grid", &grid)
      .def("is_cart", [](const TorchCommunicatorPtr& self) { return usable(self)->origin().is_cart(); })
      .def("free", [](const TorchCommunicatorPtr& self) { self->communicator()->close(); });
  m.def("dup(int comm) -> __torch__.torch.classes.weft.Communicator",
        [](std::int64_t comm) { return wrap(agreed_origin(comm, "dup").dup()); });
  m.def("split(int color, int key, int comm) -> __torch__.torch.classes.weft.Communicator?", &split);
  m.def("split_shared(int comm) -> __torch__.torch.classes.weft.Communicator",
        [](std::int64_t comm) { return wrap(agreed_origin(comm, "split_shared").split_shared()); });
  m.def("cart(int[] extents, bool[] periodic, int comm) -> __torch__.torch.classes.weft.Communicator", &cart);
  m.def("reject(str name, str problem, int comm) -> ()", &reject);
  m.def("world() -> __torch__.torch.classes.weft.Communicator", &world_communicator);
  m.def("from_fortran(int handle) -> __torch__.torch.classes.weft.Communicator", &communicator_from_fortran);
}

}  // namespace weft::collective
