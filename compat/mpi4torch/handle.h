// The handles that Isend, Irecv and Iallreduce return: lists of tensors, which TorchScript supports everywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace mpi4torch {

// {dummy, owner}. The autograd history of the dummy contains the start of the operation. The memory of the second
// tensor owns the operation, which is cancelled when the tensor is destroyed.
using Handle = std::vector<at::Tensor>;

class Transfer {
 public:
  Transfer() = default;
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Blocks until the operation completes and returns a result that depends on `dummy`. Called once.
  [[nodiscard]] virtual at::Tensor finish(const at::Tensor& dummy) = 0;

 private:
  friend at::Tensor wait(const Handle& handle);
  bool finished_ = false;
};

[[nodiscard]] Handle make_handle(at::Tensor dummy, std::shared_ptr<Transfer> transfer);
// Returns a tensor for the first element of a handle.
[[nodiscard]] at::Tensor make_dummy();

// Blocks until the operation completes and returns its result. Throws c10::Error if `handle` is not a handle or wait()
// was already called for it.
[[nodiscard]] at::Tensor wait(const Handle& handle);

}  // namespace mpi4torch
