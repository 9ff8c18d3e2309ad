#include "weft/collective/autograd/pending_operation.h"

#include <c10/util/Exception.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <optional>

#include "weft/collective/autograd/call.h"
#include "weft/mpi/waiter.h"

namespace weft::collective {
namespace {

using PendingPtr = c10::intrusive_ptr<PendingOperation>;

std::optional<at::Tensor> wait_op(const PendingPtr& pending) {
  at::Tensor result = wait(pending);
  return result.defined() ? std::optional<at::Tensor>(std::move(result)) : std::nullopt;
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_pending_operation_class();
  m.def("wait(__torch__.torch.classes.weft.PendingOperation pending) -> Tensor?", &wait_op);
}

}  // namespace

at::Tensor wait(const PendingPtr& pending, std::source_location where) {
  TORCH_CHECK(pending != nullptr, "weft: wait expects a pending operation, got a null pointer");
  const mpi::OperationScope scope(pending->name(), pending->communicator().get(), where);
  TORCH_CHECK(!pending->finished_, "weft: wait was already called for this ", pending->name(),
              "; keep the result of the first call");
  pending->finished_ = true;
  return interruptible([&] { return pending->finish(); });
}

void register_pending_operation_class() {
  static const auto registered = torch::class_<PendingOperation>("weft", "PendingOperation")
                                     .def("ready", [](const PendingPtr& self) { return self->ready(); })
                                     .def("source", [](const PendingPtr& self) { return self->source(); })
                                     .def("tag", [](const PendingPtr& self) { return self->tag(); });
}

}  // namespace weft::collective
