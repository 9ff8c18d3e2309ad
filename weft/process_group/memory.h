// Tensors as the group's operations see them: memory to read, memory to write, and how a reduction treats both.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/mpi/reduce_op.h"

namespace weft::process_group {

// Memory with the tensor's contents that MPI can read: the tensor's own where possible.
[[nodiscard]] at::Tensor source_of(const at::Tensor& tensor);

// Memory for MPI to write what the tensor will hold: its own where possible; otherwise deliver() copies.
struct Target {
  at::Tensor tensor;
  at::Tensor memory;

  [[nodiscard]] void* data() const { return memory.mutable_data_ptr(); }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(memory.nbytes()); }
  void deliver() const;
};
[[nodiscard]] Target target_of(const at::Tensor& tensor);
// The same in memory of another type.
[[nodiscard]] Target target_of(const at::Tensor& tensor, at::ScalarType type);
// The same, holding the tensor's contents already: for operations in place.
[[nodiscard]] Target in_place_of(const at::Tensor& tensor);
[[nodiscard]] Target in_place_of(const at::Tensor& tensor, at::ScalarType type);
void deliver_all(const std::vector<Target>& targets);
// Makes a sum over so many ranks their mean.
void divide(const at::Tensor& memory, int ranks);

// c10d's reductions on weft's: what to do before and after the ranks' values are combined.
class Reduction {
 public:
  // Throws (TORCH_CHECK) for what the type of `like` does not support.
  Reduction(const c10d::ReduceOp& op, const at::Tensor& like, int ranks);

  [[nodiscard]] mpi::ReduceOp op() const noexcept { return op_; }
  // Of the memory that is combined.
  [[nodiscard]] at::ScalarType type() const noexcept { return type_; }
  // Whether prepare() changes anything, so that inputs must be copied first.
  [[nodiscard]] bool scales() const noexcept { return factor_.defined(); }
  void prepare(const at::Tensor& memory) const;
  void finish(const at::Tensor& memory) const;
  // The contents of an input that must stay as it is, prepared.
  [[nodiscard]] at::Tensor prepared(const at::Tensor& input) const;

 private:
  mpi::ReduceOp op_;
  at::ScalarType type_;
  int ranks_;
  at::Tensor factor_;  // of PREMUL_SUM
};

// What is left to do when the ranks' values are combined in the target's memory.
[[nodiscard]] std::function<void()> delivery(Reduction reduction, Target target);

// Consecutive parts of the first dimension, as views.
[[nodiscard]] std::vector<at::Tensor> parts_of(const at::Tensor& whole, const std::vector<std::int64_t>& sizes);
// Equal parts of all elements, as flat views; `whole` is contiguous.
[[nodiscard]] std::vector<at::Tensor> equal_parts(const at::Tensor& whole, int parts);

// Throws (TORCH_CHECK) unless there is one tensor for each rank, all of one type that can be communicated.
void require_one_each(const std::vector<at::Tensor>& tensors, int ranks, const char* what);
// Throws (TORCH_CHECK) unless there is exactly one tensor and it can be communicated.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what);
// Throws (TORCH_CHECK) unless both have the same type.
void require_same_type(const at::Tensor& a, const at::Tensor& b, const char* what);

}  // namespace weft::process_group
