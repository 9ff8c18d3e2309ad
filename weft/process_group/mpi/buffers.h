// Conversion of tensors to MPI buffers for the group's operations, and c10d's reductions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/mpi/reduce_op.h"

namespace weft::process_group {

// Returns memory with the tensor's contents that MPI can read: the tensor's own if possible, otherwise a copy.
[[nodiscard]] at::Tensor input_buffer(const at::Tensor& tensor);

// Memory that MPI writes: the tensor's own if possible; otherwise deliver() copies it to the tensor. All functions
// below throw (TORCH_CHECK) if the tensor cannot be written, because several of its elements share memory.
struct OutputBuffer {
  at::Tensor tensor;
  at::Tensor memory;

  [[nodiscard]] void* data() const { return memory.mutable_data_ptr(); }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(memory.nbytes()); }
  void deliver() const;
};
[[nodiscard]] OutputBuffer output_buffer(const at::Tensor& tensor);
// Like output_buffer(tensor), but the memory has the type `type`; deliver() converts it.
[[nodiscard]] OutputBuffer output_buffer(const at::Tensor& tensor, at::ScalarType type);
// Like output_buffer(), but the memory contains the tensor's values, for in-place operations.
[[nodiscard]] OutputBuffer in_place_buffer(const at::Tensor& tensor);
[[nodiscard]] OutputBuffer in_place_buffer(const at::Tensor& tensor, at::ScalarType type);
void deliver_all(const std::vector<OutputBuffer>& targets);
// Divides a sum over `ranks` ranks to get the mean.
void divide(const at::Tensor& memory, int ranks);

// Implements c10d's reductions with weft's: the steps before and after the ranks' values are combined.
class Reduction {
 public:
  enum class Algorithm : std::int8_t { kMpi, kDirect };  // weft/mpi/collectives.h or direct_reduce.h

  // Throws (TORCH_CHECK) if the reduction does not support the type of `like`.
  Reduction(const c10d::ReduceOp& op, const at::Tensor& like, int ranks, Algorithm algorithm);

  [[nodiscard]] mpi::ReduceOp op() const noexcept { return op_; }
  // Returns the type of the messages.
  [[nodiscard]] at::ScalarType type() const noexcept { return type_; }
  // True if prepare() changes its argument, so that inputs must be copied first.
  [[nodiscard]] bool scales() const noexcept { return factor_.defined(); }
  void prepare(const at::Tensor& memory) const;
  void finish(const at::Tensor& memory) const;
  // Returns a prepared copy of an input that must not change.
  [[nodiscard]] at::Tensor prepared(const at::Tensor& input) const;

 private:
  mpi::ReduceOp op_;
  at::ScalarType type_;
  int ranks_;
  at::Tensor factor_;  // factor of PREMUL_SUM
};

// Returns the steps after the ranks' values are combined in the target's memory.
[[nodiscard]] std::function<void()> delivery(Reduction reduction, OutputBuffer target);

// Splits the first dimension into views of the given sizes.
[[nodiscard]] std::vector<at::Tensor> parts_of(const at::Tensor& whole, const std::vector<std::int64_t>& sizes);
// Splits all elements into flat views of equal size; `whole` must be contiguous.
[[nodiscard]] std::vector<at::Tensor> equal_parts(const at::Tensor& whole, int parts);

// Throws (TORCH_CHECK) unless there is one tensor for each rank, all of one supported type.
void require_one_each(const std::vector<at::Tensor>& tensors, int ranks, const char* what);
// Throws (TORCH_CHECK) unless there is one output per input.
void require_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const char* what);
// Returns the only tensor. Throws (TORCH_CHECK) if there are others or its type is not supported.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what);
// Throws (TORCH_CHECK) unless both have the same type.
void require_same_type(const at::Tensor& a, const at::Tensor& b, const char* what);

}  // namespace weft::process_group
