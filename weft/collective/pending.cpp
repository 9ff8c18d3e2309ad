#include "weft/collective/pending.h"

#include <c10/util/Exception.h>

#include "weft/collective/call.h"
#include "weft/mpi/waiter.h"

namespace weft::collective {

at::Tensor wait(const c10::intrusive_ptr<Pending>& pending, std::source_location where) {
  TORCH_CHECK(pending != nullptr, "weft: expected a pending operation, got none");
  const mpi::OperationScope scope(pending->name(), pending->team().get(), where);
  TORCH_CHECK(!pending->finished_, "weft: this ", pending->name(), " was waited for already; keep its result instead");
  pending->finished_ = true;
  return interruptible([&] { return pending->finish(); });
}

}  // namespace weft::collective
