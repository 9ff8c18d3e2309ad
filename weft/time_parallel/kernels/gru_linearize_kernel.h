// Steps of a GRU at given states, and their derivatives by these states. The steps are independent of each other.
//
// With h' = n + k (h - n) (gru_kernel.h) and c = W_n h + b_n, the Jacobian is diag(a) + diag(p) W_z + diag(q) W_n +
// diag(s) W_r:
//   a = k,  p = (h - n) k',  q = (1 - k) (1 - n^2) r,  s = (1 - k) (1 - n^2) c r (1 - r)
#pragma once

#include <cstdint>

namespace weft::time_parallel {

template <class T>
struct GruLinearize {
  std::int64_t first_row = 0;
  std::int64_t end_row = 0;
  std::int64_t hidden = 0;
  const T* input = nullptr;   // [rows, 3 * hidden]: W x + b of r, z and n
  const T* before = nullptr;  // h: [rows, hidden]
  const T* weight = nullptr;  // [3 * hidden, hidden]
  const T* bias = nullptr;    // [3 * hidden] or null
  T implicit_step = 0;
  T* next = nullptr;      // h': [rows, hidden]
  T* diagonal = nullptr;  // [rows, hidden]: the diagonal of the Jacobian; null if not needed
  T* factors = nullptr;   // [rows, 4, hidden]: a, p, q and s; null if not needed
};

}  // namespace weft::time_parallel
