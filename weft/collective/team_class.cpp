#include "weft/collective/team_class.h"

#include <torch/custom_class.h>
#include <torch/library.h>

#include <sstream>
#include <tuple>

#include "weft/collective/backward.h"
#include "weft/collective/call.h"
#include "weft/collective/device.h"
#include "weft/collective/neighbour_exchange.h"
#include "weft/collective/nonblocking.h"
#include "weft/collective/operator.h"
#include "weft/collective/point_to_point.h"
#include "weft/collective/reduction.h"
#include "weft/collective/tape.h"
#include "weft/collective/traced.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/options.h"

namespace weft::collective {
namespace {

using at::Tensor;
using PendingPtr = c10::intrusive_ptr<Pending>;

TeamPtr hold(mpi::Communicator comm) {
  auto team = mpi::Team::adopt(std::move(comm));
  return team ? c10::make_intrusive<TeamHolder>(std::move(team)) : TeamPtr();
}

const Comm& open(const TeamPtr& self) {
  self->team()->enter();
  return self->team();
}

// All ranks make the new communicator together, or all hear that they do not: MPI itself would only wait.
mpi::CommunicatorView meet(const TeamPtr& self, const char* name, at::IntArrayRef arguments = {}) {
  Negotiation talk(name, self->team()->id());
  talk.agree(Signature(name).add(arguments), 0, [&] {
    std::ostringstream text;
    text << name << "(" << arguments << ")";
    return text.str();
  });
  return self->team()->origin();
}

TeamPtr split(const TeamPtr& self, std::int64_t color, std::int64_t key) {
  return hold(meet(self, "split").split(static_cast<int>(color), static_cast<int>(key)));
}

TeamPtr cart(const TeamPtr& self, const std::vector<std::int64_t>& extents, const c10::List<bool>& periodic) {
  const std::vector<int> narrow(extents.begin(), extents.end());
  return hold(meet(self, "cart", extents).cart(narrow, periodic.vec()));
}

std::tuple<std::vector<std::int64_t>, c10::List<bool>, std::vector<std::int64_t>> grid(const TeamPtr& self) {
  const auto grid = open(self)->origin().grid();
  c10::List<bool> periodic;
  for (const bool wraps : grid.periodic) periodic.push_back(wraps);
  return {{grid.extents.begin(), grid.extents.end()}, periodic, {grid.coordinates.begin(), grid.coordinates.end()}};
}

std::optional<std::int64_t> known(std::int64_t value) {
  return value < 0 ? std::nullopt : std::optional<std::int64_t>(value);
}

// Negative source or tag: any. No tensor has shape (-1), so an absent `like` is an undefined tensor.
PendingPtr irecv_op(const std::optional<Tensor>& like, std::int64_t source, std::int64_t tag, std::int64_t comm) {
  return irecv(like, mpi::Team::find(comm), known(source), known(tag));
}

std::tuple<Tensor, std::int64_t, std::int64_t> recv_op(const std::optional<Tensor>& like, std::int64_t source,
                                                       std::int64_t tag, std::int64_t comm) {
  auto received = recv(like, mpi::Team::find(comm), known(source), known(tag));
  return {std::move(received.tensor), received.source, received.tag};
}

std::optional<Tensor> wait_op(const PendingPtr& pending) {
  Tensor result = wait(pending);
  return result.defined() ? std::optional<Tensor>(std::move(result)) : std::nullopt;
}

std::vector<std::optional<Tensor>> exchange_op(const std::vector<std::optional<Tensor>>& outgoing, std::int64_t comm) {
  std::vector<Tensor> tensors;
  for (const auto& tensor : outgoing) tensors.push_back(tensor.value_or(Tensor()));
  std::vector<std::optional<Tensor>> result;
  for (auto& tensor : neighbour_exchange(tensors, mpi::Team::find(comm))) {
    result.push_back(tensor.defined() ? std::optional<Tensor>(std::move(tensor)) : std::nullopt);
  }
  return result;
}

std::vector<std::unique_ptr<TapeScope>>& scopes() {
  thread_local std::vector<std::unique_ptr<TapeScope>> stack;
  return stack;
}

void enter_tape(bool on) { scopes().push_back(std::make_unique<TapeScope>(on)); }

void leave_tape() {
  TORCH_CHECK(!scopes().empty(), "weft: no tape scope to leave");
  scopes().pop_back();
}

void configure(double timeout, double warn_after, bool debug, bool check, bool cuda_aware, std::int64_t max_count) {
  TORCH_CHECK_VALUE(timeout > 0 && warn_after > 0, "weft: expected a timeout and a warning time above 0 s, got ",
                    timeout, " and ", warn_after);
  TORCH_CHECK_VALUE(max_count > 0, "weft: expected max_count above 0, got ", max_count);
  mpi::Options options = mpi::options();
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000));
  options.warn_after = std::chrono::milliseconds(static_cast<std::int64_t>(warn_after * 1000));
  options.debug = debug;
  options.check = check;
  options.cuda_aware = cuda_aware;
  options.max_count = max_count;
  mpi::set_options(options);
}

std::tuple<double, double, bool, bool, bool, std::int64_t> configuration() {
  const auto& options = mpi::options();
  return {static_cast<double>(options.timeout.count()) / 1000,
          static_cast<double>(options.warn_after.count()) / 1000,
          options.debug,
          options.check,
          options.cuda_aware,
          options.max_count};
}

// Facts for weft.doctor(): library, standard, thread level, host, device memory.
std::vector<std::string> facts() {
  return {mpi::Environment::library_version(), mpi::Environment::standard_version(), mpi::Environment::thread_level(),
          mpi::Environment::processor_name(), cuda_aware_report()};
}

}  // namespace

TeamPtr world_team() { return c10::make_intrusive<TeamHolder>(mpi::Team::world()); }

TeamPtr team_from_fortran(std::int64_t handle) {
  return hold(mpi::Communicator::from_fortran(static_cast<int>(handle)));
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.class_<TeamHolder>("Team")
      .def("id", [](const TeamPtr& self) { return self->team()->id(); })
      .def("rank", [](const TeamPtr& self) { return static_cast<std::int64_t>(self->team()->rank()); })
      .def("size", [](const TeamPtr& self) { return static_cast<std::int64_t>(self->team()->size()); })
      .def("name", [](const TeamPtr& self) { return self->team()->name(); })
      .def("closed", [](const TeamPtr& self) { return self->team()->closed(); })
      .def("dup", [](const TeamPtr& self) { return hold(meet(self, "dup").dup()); })
      .def("split", &split)
      .def("split_shared", [](const TeamPtr& self) { return hold(meet(self, "split_shared").split_shared()); })
      .def("cart", &cart)
      .def("grid", &grid)
      .def("is_cart", [](const TeamPtr& self) { return open(self)->origin().is_cart(); })
      .def("free", [](const TeamPtr& self) { self->team()->close(); });
  m.class_<Pending>("Pending")
      .def("ready", [](const PendingPtr& self) { return self->ready(); })
      .def("source", [](const PendingPtr& self) { return self->source(); })
      .def("tag", [](const PendingPtr& self) { return self->tag(); });
  m.def("world", &world_team);
  m.def("from_fortran", &team_from_fortran);

  m.def("isend", [](const Tensor& x, std::int64_t dest, std::int64_t tag, std::int64_t comm) {
    return isend(x, mpi::Team::find(comm), dest, tag);
  });
  m.def("irecv", &irecv_op);
  m.def("send", [](const Tensor& x, std::int64_t dest, std::int64_t tag, std::int64_t comm) {
    send(x, mpi::Team::find(comm), dest, tag);
  });
  m.def("recv", &recv_op);
  m.def("sendrecv", [](const Tensor& x, std::int64_t dest, std::int64_t source, std::int64_t tag, std::int64_t comm) {
    return sendrecv(x, mpi::Team::find(comm), dest, source, tag);
  });
  m.def("wait", &wait_op);
  m.def("iall_reduce", [](const Tensor& x, std::string_view op, std::int64_t comm) {
    return iall_reduce(x, mpi::Team::find(comm), parse_reduce_op(op));
  });
  m.def("iall_gather", [](const Tensor& x, std::int64_t dim, std::int64_t comm) {
    return iall_gather(x, mpi::Team::find(comm), dim);
  });
  m.def("ibroadcast", [](const Tensor& x, std::int64_t root, std::int64_t comm) {
    return ibroadcast(x, mpi::Team::find(comm), root);
  });
  m.def("neighbour_exchange", &exchange_op);
  m.def("barrier", [](std::int64_t comm) { barrier(mpi::Team::find(comm)); });

  m.def("anchor", &anchor);
  m.def("backward", [](const std::optional<Tensor>& loss, const std::optional<Tensor>& gradient, bool retain_graph,
                       bool create_graph) { backward(loss, gradient, retain_graph, create_graph); });
  m.def("grad",
        [](const std::optional<Tensor>& loss, const std::vector<Tensor>& inputs, const std::optional<Tensor>& gradient,
           bool retain_graph, bool create_graph) { return grad(loss, inputs, gradient, retain_graph, create_graph); });
  m.def("reset_tape", [] { Tape::current().reset(); });
  m.def("tape_length", [] { return Tape::current().length(); });
  m.def("enter_tape", &enter_tape);
  m.def("enter_shapes_only", [] { enter_shapes_only(); });
  m.def("leave_shapes_only", [] { leave_shapes_only(); });
  m.def("leave_tape", &leave_tape);

  m.def("alarm", [](std::string_view cause) { mpi::raise_alarm_everywhere(std::string(cause)); });
  m.def("configure", &configure);
  m.def("configuration", &configuration);
  m.def("facts", &facts);
  m.def("initialize", [] { mpi::Environment::ensure(); });
  m.def("finalize", [] { mpi::Environment::finalize(); });
}

}  // namespace weft::collective

// For bindings that cannot link C++: tells weft who knows the call sites of a script.
extern "C" __attribute__((visibility("default"))) void weft_set_call_site_hook(weft::mpi::CallSiteHook hook) {
  weft::mpi::set_call_site_hook(hook);
}
