// What Isend, Irecv and Iallreduce return: tensors, because TorchScript can carry those anywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace mpi4torch {

// {dummy, seal}. The dummy's history leads to the operation that started; the seal's memory owns the operation, which
// is given up when nothing refers to that tensor any more.
using Handle = std::vector<at::Tensor>;

class Transfer {
 public:
  Transfer() = default;
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Blocks, and returns a result that depends on `dummy`. Called once.
  [[nodiscard]] virtual at::Tensor finish(const at::Tensor& dummy) = 0;

 private:
  friend at::Tensor wait(const Handle& handle);
  bool finished_ = false;
};

[[nodiscard]] Handle make_handle(at::Tensor dummy, std::shared_ptr<Transfer> transfer);
// A tensor for the first place of a handle.
[[nodiscard]] at::Tensor make_dummy();

// Throws for a handle that was waited for already, and for tensors that are no handle.
[[nodiscard]] at::Tensor wait(const Handle& handle);

}  // namespace mpi4torch
