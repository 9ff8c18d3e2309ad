// Arguments of the recurrence kernels: pointers into a batch of sequences, with strides in elements.
#pragma once

#include <cstdint>

namespace weft::time_parallel {

// A [steps, batch, features] array in any order of the first two dimensions. The features of a step are contiguous.
template <class T>
struct Sequence {
  T* data = nullptr;
  std::int64_t step_stride = 0;
  std::int64_t row_stride = 0;

  [[nodiscard]] T* at(std::int64_t step, std::int64_t row) const {
    return data + step * step_stride + row * row_stride;
  }
};

// The steps and batch rows that a kernel call computes.
struct Extent {
  std::int64_t steps = 0;
  std::int64_t first_row = 0;
  std::int64_t end_row = 0;
  std::int64_t hidden = 0;
  bool reverse = false;                   // from the last step to the first
  const std::int64_t* lengths = nullptr;  // steps of each row; null if all rows have `steps` steps

  [[nodiscard]] std::int64_t rows() const { return end_row - first_row; }
  // The position of the i-th step in the order of the recurrence.
  [[nodiscard]] std::int64_t step(std::int64_t i) const { return reverse ? steps - 1 - i : i; }
  [[nodiscard]] bool active(std::int64_t row, std::int64_t step) const { return !lengths || step < lengths[row]; }
  // True if `step` is the first step of the row in the order of the recurrence.
  [[nodiscard]] bool first(std::int64_t row, std::int64_t step) const {
    return reverse ? step + 1 >= (lengths ? lengths[row] : steps) : step == 0;
  }
};

}  // namespace weft::time_parallel
