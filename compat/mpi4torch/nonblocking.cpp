#include "weft/collective/nonblocking.h"
#include "compat/mpi4torch/dummies.h"
#include "compat/mpi4torch/point_to_point.h"
#include "compat/mpi4torch/reductions.h"
#include "weft/collective/autograd/tape.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::collective::PendingOperation;
using weft::collective::TapeScope;

class AllreduceTransfer final : public Transfer {
 public:
  explicit AllreduceTransfer(c10::intrusive_ptr<PendingOperation> pending) : pending_(std::move(pending)) {}

  [[nodiscard]] Tensor finish(const Tensor& dummy) override {
    const TapeScope no_tape(false);
    return join_dummies(weft::collective::wait(pending_), {dummy});
  }

 private:
  c10::intrusive_ptr<PendingOperation> pending_;
};

}  // namespace

Handle iallreduce(const Tensor& x, std::int64_t op, const CommunicatorPtr& communicator) {
  const weft::mpi::OperationScope scope("Iallreduce", communicator.get());
  const TapeScope no_tape(false);
  auto pending = weft::collective::iall_reduce(x, communicator, reduction(op, "Iallreduce", communicator));
  return make_handle(make_dummy(), std::make_shared<AllreduceTransfer>(std::move(pending)));
}

}  // namespace mpi4torch
