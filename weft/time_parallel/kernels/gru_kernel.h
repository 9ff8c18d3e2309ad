// The recurrence of a GRU over a batch of sequences, without its input products.
//
//   r = sigmoid(input_r + W_r h + b_r)
//   z = sigmoid(input_z + W_z h + b_z)
//   n = tanh(input_n + r * (W_n h + b_n))
//   h = (1 - k) * n + k * h
//
// The share k of the old state is z. In an implicit GRU (Moon and Cyr, ICLR 2022) it is 1 / (1 + s (1 - z)): the step s
// of the ordinary differential equation h' = (1 - z) (n - h), implicit in h.
#pragma once

#include "weft/time_parallel/kernels/sequence.h"

namespace weft::time_parallel {

template <class T>
struct GruForward {
  Extent extent;
  Sequence<const T> input;     // [steps, batch, 3 * hidden]: W x + b of r, z and n
  const T* initial = nullptr;  // [batch, hidden]
  const T* weight = nullptr;   // [3 * hidden, hidden]
  const T* bias = nullptr;     // [3 * hidden] or null
  T implicit_step = 0;         // s; 0 for an explicit GRU
  Sequence<T> output;          // [steps, batch, hidden]; zero after the end of a row
  T* final_state = nullptr;    // [batch, hidden]
  Sequence<T> gates;           // [steps, batch, 4 * hidden]: r, k, n and W_n h + b_n for backward; null if not needed
};

template <class T>
struct GruBackward {
  Extent extent;
  Sequence<const T> grad_output;  // null if undefined
  const T* grad_final = nullptr;  // null if undefined
  Sequence<const T> gates;
  Sequence<const T> output;
  const T* initial = nullptr;
  const T* weight = nullptr;
  T implicit_step = 0;
  Sequence<T> grad_input;      // also the gradient of W h + b, except for n
  Sequence<T> grad_candidate;  // [steps, batch, hidden]: the gradient of W_n h + b_n
  Sequence<T> previous;        // [steps, batch, hidden]: the states before each step; zero after the end of a row
  T* grad_initial = nullptr;   // [batch, hidden]
};

}  // namespace weft::time_parallel
