#include "compat/mpi4torch/handle.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <atomic>

namespace mpi4torch {
namespace {

using at::Tensor;

// What the memory of a seal belongs to; the number is what the tensor shows.
struct Sealed {
  std::int64_t number;
  std::shared_ptr<Transfer> transfer;
};

void drop_sealed(void* sealed) { delete static_cast<Sealed*>(sealed); }

std::shared_ptr<Transfer> unseal(const Handle& handle) {
  const bool ours = handle.size() == 2 && handle[1].defined() && handle[1].has_storage() &&
                    handle[1].storage().data_ptr().get_deleter() == &drop_sealed;
  TORCH_CHECK(ours, "mpi4torch: Wait expects a handle as Isend or Irecv gave it");
  return static_cast<Sealed*>(handle[1].storage().data_ptr().get_context())->transfer;
}

}  // namespace

Tensor make_dummy() { return at::zeros({}); }

Handle make_handle(Tensor dummy, std::shared_ptr<Transfer> transfer) {
  static std::atomic<std::int64_t> next{0};
  auto* sealed = new Sealed{next++, std::move(transfer)};
  Tensor seal = at::for_blob(&sealed->number, {1}).context(sealed, &drop_sealed).options(at::kLong).make_tensor();
  return {std::move(dummy), std::move(seal)};
}

Tensor wait(const Handle& handle) {
  const auto transfer = unseal(handle);
  TORCH_CHECK(!transfer->finished_,
              "mpi4torch: Detected bifurcation in MPIWait handle usage. A handle can be waited for ",
              "once; keep the tensor that Wait returned.");
  Tensor result = transfer->finish(handle[0]);
  transfer->finished_ = true;  // not before: after a timeout the caller may wait again
  return result;
}

}  // namespace mpi4torch
