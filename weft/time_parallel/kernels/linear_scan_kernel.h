// Linear recurrences over a batch of sequences: the inner loop of Newton's method.
//
//   forward:  s[t] = J[t] s[t-1] + r[t]
//   adjoint:  s[t] = r[t] + J[t+1]^T s[t+1]
//
// A matrix J[t] consists of blocks x blocks diagonal matrices with `lanes` elements each. A diagonal matrix has one
// block, and a dense matrix has one lane.
#pragma once

#include <cstdint>

namespace weft::time_parallel {

template <class T>
struct LinearScan {
  std::int64_t steps = 0;
  std::int64_t batch = 0;
  std::int64_t first_row = 0;  // the rows of the batch that the call computes
  std::int64_t end_row = 0;
  std::int64_t blocks = 1;
  std::int64_t lanes = 0;
  bool adjoint = false;
  const T* jacobian = nullptr;    // [steps, batch, blocks, blocks, lanes]
  const T* right_hand = nullptr;  // r: [steps, batch, blocks, lanes]; null for zero
  const T* start = nullptr;       // [batch, blocks, lanes]: s before the first step; null for zero
  T* solution = nullptr;          // s: [steps, batch, blocks, lanes], may be right_hand; null if not needed
  bool add = false;               // adds s to `solution` instead of storing it
  T* end = nullptr;               // [batch, blocks, lanes]: forward: the last s; adjoint: J[0]^T s[0]
  T* product = nullptr;  // [batch, blocks, blocks, lanes]: the derivative of `end` by `start`; null if not needed
};

}  // namespace weft::time_parallel
