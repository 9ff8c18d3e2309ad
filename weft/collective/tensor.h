// Conversion between torch tensors and MPI buffers: datatypes, contiguous memory, pooled outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/mpi/datatype.h"

namespace weft::collective {

using at::Tensor;

// Throws (TORCH_CHECK) for unsupported types, with a list of the supported ones.
[[nodiscard]] mpi::Datatype datatype_of(at::ScalarType type);
[[nodiscard]] at::ScalarType scalar_type_of(mpi::Datatype type);

// Throws (TORCH_CHECK) unless `x` is a defined, strided tensor of a supported type.
void require_communicable(const Tensor& x);

// Returns text such as "float32[2, 3]", followed by the device unless it is the CPU.
[[nodiscard]] std::string describe(const Tensor& x);

// Returns memory that MPI can read: `x` itself if it is contiguous host memory (or device memory and MPI is
// CUDA-aware), otherwise a contiguous copy in host memory.
[[nodiscard]] Tensor readable(const Tensor& x);
// Returns new memory that MPI can write, for a result on the device of `like`. Host memory comes from the pool.
[[nodiscard]] Tensor writable(at::IntArrayRef sizes, const Tensor& like);
// Copies a result to the device of `like`, if it is elsewhere.
[[nodiscard]] Tensor to_device_of(Tensor result, const Tensor& like);

// Returns an owner of the tensors' memory for a Request.
[[nodiscard]] std::shared_ptr<void> keep_alive(Tensor x, Tensor y = {});

// Converts a possibly negative dimension. Throws IndexError with the allowed range.
[[nodiscard]] std::int64_t wrap_dim(const Tensor& x, std::int64_t dim);
// Moves `dim` to the front, and back. A 0-dimensional tensor becomes a 1-dimensional one of 1 element.
[[nodiscard]] Tensor to_front(const Tensor& x, std::int64_t dim);
[[nodiscard]] Tensor from_front(const Tensor& x, std::int64_t dim);

}  // namespace weft::collective
