#include "weft/collective/nonblocking.h"
#include "compat/mpi4torch/dummies.h"
#include "compat/mpi4torch/point_to_point.h"
#include "compat/mpi4torch/reductions.h"
#include "weft/collective/tape.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::collective::Pending;
using weft::collective::TapeScope;

class Collective final : public Transfer {
 public:
  explicit Collective(c10::intrusive_ptr<Pending> pending) : pending_(std::move(pending)) {}

  [[nodiscard]] Tensor finish(const Tensor& dummy) override {
    const TapeScope no_tape(false);
    return join_dummies(weft::collective::wait(pending_), {dummy});
  }

 private:
  c10::intrusive_ptr<Pending> pending_;
};

}  // namespace

Handle iallreduce(const Tensor& x, std::int64_t op, const Comm& team) {
  const weft::mpi::OperationScope scope("Iallreduce", team.get());
  const TapeScope no_tape(false);
  auto pending = weft::collective::iall_reduce(x, team, reduction(op, "Iallreduce", team));
  return make_handle(make_dummy(), std::make_shared<Collective>(std::move(pending)));
}

}  // namespace mpi4torch
