// Tensors as arguments of the recurrence kernels.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "weft/time_parallel/kernels/sequence.h"

namespace weft::time_parallel {

// Returns x, or a copy if its last dimension is not contiguous; a broadcast tensor stays one. x: [steps, batch,
// features].
[[nodiscard]] at::Tensor with_contiguous_features(const at::Tensor& x);

// Returns an uninitialised [steps, batch, features] tensor with the memory order of `like` (time-major or batch-major).
// On the CPU, its memory comes from the pool: page faults of fresh memory cost as much as the recurrence of small
// cells.
[[nodiscard]] at::Tensor empty_sequence(const at::Tensor& like, std::int64_t features);

// Returns x as a matrix [steps * batch, features] in memory order. x: a result of empty_sequence.
[[nodiscard]] at::Tensor as_matrix(const at::Tensor& x);

// Returns x in the type in which the kernels compute: float64 for float64, otherwise float32.
[[nodiscard]] at::Tensor to_compute_type(const at::Tensor& x);

// torch's custom functions take optional tensors, not undefined ones.
[[nodiscard]] inline std::optional<at::Tensor> if_defined(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

template <class T>
[[nodiscard]] Sequence<const T> read(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.const_data_ptr<T>(), x.stride(0), x.stride(1)};
}
template <class T>
[[nodiscard]] Sequence<T> write(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.mutable_data_ptr<T>(), x.stride(0), x.stride(1)};
}
template <class T>
[[nodiscard]] const T* pointer(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

// Calls body(extent) for parts of the batch, in parallel. Rows are independent, so threads do not wait for each other.
template <class Body>
void for_row_ranges(const Extent& all, const Body& body) {
  // A part needs some rows for an efficient matrix product.
  constexpr std::int64_t kMinRows = 4;
  at::parallel_for(0, all.end_row, kMinRows, [&](std::int64_t first, std::int64_t end) {
    Extent part = all;
    part.first_row = first;
    part.end_row = end;
    body(part);
  });
}

// The extent of a call. `lengths` holds int64 on the CPU and must outlive the result.
[[nodiscard]] Extent extent_of(const at::Tensor& input, std::int64_t hidden, const std::optional<at::Tensor>& lengths,
                               bool reverse);

// Throws (TORCH_CHECK) unless `lengths`, if given, holds one int64 per row in [0, steps] on the CPU.
void check_lengths(const char* name, const std::optional<at::Tensor>& lengths, std::int64_t steps, std::int64_t batch);

// Throws (TORCH_CHECK) unless x has these sizes and the type and device of `like`.
void check_argument(const char* name, const char* argument, const at::Tensor& x, at::IntArrayRef sizes,
                    const at::Tensor& like);

}  // namespace weft::time_parallel
