#include "compat/mpi4torch/handle.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <atomic>

namespace mpi4torch {
namespace {

using at::Tensor;

// The memory of the second tensor; the number is the tensor's value.
struct OwnerStorage {
  std::int64_t number;
  std::shared_ptr<Transfer> transfer;
};

void delete_storage(void* storage) { delete static_cast<OwnerStorage*>(storage); }

std::shared_ptr<Transfer> transfer_of(const Handle& handle) {
  const bool ours = handle.size() == 2 && handle[1].defined() && handle[1].has_storage() &&
                    handle[1].storage().data_ptr().get_deleter() == &delete_storage;
  TORCH_CHECK(ours, "mpi4torch: Wait expects a handle that Isend, Irecv or Iallreduce returned");
  return static_cast<OwnerStorage*>(handle[1].storage().data_ptr().get_context())->transfer;
}

}  // namespace

Tensor make_dummy() { return at::zeros({}); }

Handle make_handle(Tensor dummy, std::shared_ptr<Transfer> transfer) {
  static std::atomic<std::int64_t> next{0};
  auto* storage = new OwnerStorage{next++, std::move(transfer)};
  Tensor owner = at::for_blob(&storage->number, {1}).context(storage, &delete_storage).options(at::kLong).make_tensor();
  return {std::move(dummy), std::move(owner)};
}

Tensor wait(const Handle& handle) {
  const auto transfer = transfer_of(handle);
  TORCH_CHECK(
      !transfer->finished_,
      "mpi4torch: Detected bifurcation in MPIWait handle usage. Call Wait once per handle and keep its result.");
  Tensor result = transfer->finish(handle[0]);
  transfer->finished_ = true;  // only now: the caller may wait again after a timeout
  return result;
}

}  // namespace mpi4torch
