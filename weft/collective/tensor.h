// Torch tensors as MPI sees them: element type, contiguous host memory, pooled outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/mpi/datatype.h"

namespace weft::collective {

using at::Tensor;

// Throws (TORCH_CHECK) for types that cannot be communicated, naming those that can.
[[nodiscard]] mpi::Datatype datatype_of(at::ScalarType type);
[[nodiscard]] at::ScalarType scalar_type_of(mpi::Datatype type);

// Throws (TORCH_CHECK) unless `x` is a defined, strided tensor of a type that can be communicated.
void require_communicable(const Tensor& x);

// "float32[2, 3]", with the device where it is not the CPU.
[[nodiscard]] std::string describe(const Tensor& x);

// Memory that MPI can read: `x` itself where it is contiguous host (or, for a CUDA-aware MPI, device) memory, a
// contiguous copy in host memory otherwise.
[[nodiscard]] Tensor readable(const Tensor& x);
// Fresh memory that MPI can write, for a result that will live on the device of `like`. Host memory is pooled.
[[nodiscard]] Tensor writable(at::IntArrayRef sizes, const Tensor& like);
// Brings a result to the device of `like`; does nothing where it is there already.
[[nodiscard]] Tensor delivered(Tensor result, const Tensor& like);

// An owner of a tensor's memory, for a Request to hold.
[[nodiscard]] std::shared_ptr<void> keep_alive(Tensor x, Tensor y = {});

// Wraps a possibly negative dimension; throws IndexError naming the allowed range.
[[nodiscard]] std::int64_t wrap_dim(const Tensor& x, std::int64_t dim);
// The tensor with `dim` moved to the front, and back. 0-dimensional tensors become one element long.
[[nodiscard]] Tensor to_front(const Tensor& x, std::int64_t dim);
[[nodiscard]] Tensor from_front(const Tensor& x, std::int64_t dim);

}  // namespace weft::collective
