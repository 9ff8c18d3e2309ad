// Steps of an LSTM without projection at given states, and their derivatives by these states. The steps are independent
// of each other.
//
// With c' = f c + i g, h' = o t and t = tanh(c'), the derivatives by h and c are
//   c' by h: diag(p_i) W_i + diag(p_f) W_f + diag(p_g) W_g,  c' by c: diag(f)
//   h' by h: diag(p_o) W_o + diag(q) (c' by h),              h' by c: diag(q) (c' by c)
//   p_i = g i (1 - i),  p_f = c f (1 - f),  p_g = i (1 - g^2),  p_o = t o (1 - o),  q = o (1 - t^2)
#pragma once

#include <cstdint>

namespace weft::time_parallel {

template <class T>
struct LstmLinearize {
  std::int64_t first_row = 0;
  std::int64_t end_row = 0;
  std::int64_t hidden = 0;
  const T* input = nullptr;   // [rows, 4 * hidden]: W x + b of i, f, g and o
  const T* before = nullptr;  // [rows, 2, hidden]: h and c
  const T* weight = nullptr;  // [4 * hidden, hidden]
  const T* bias = nullptr;    // [4 * hidden] or null
  T* next = nullptr;          // [rows, 2, hidden]: h' and c'
  T* diagonals = nullptr;     // [rows, 2, 2, hidden]: the diagonals of the blocks of the Jacobian; null if not needed
  T* factors = nullptr;       // [rows, 6, hidden]: p_i, p_f, p_g, p_o, q and f; null if not needed
};

}  // namespace weft::time_parallel
