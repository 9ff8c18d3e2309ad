// The recurrence of an LSTM over a batch of sequences, without its input products.
//
//   i, f, o = sigmoid(input + W h + b),  g = tanh(input_g + W_g h + b_g)
//   c = f * c + i * g
//   h = P (o * tanh(c)), or without projection h = o * tanh(c)
#pragma once

#include "weft/time_parallel/kernels/sequence.h"

namespace weft::time_parallel {

template <class T>
struct LstmForward {
  Extent extent;                    // `hidden` is the size of the cell state c
  std::int64_t projected = 0;       // the size of h
  Sequence<const T> input;          // [steps, batch, 4 * hidden]: W x + b of i, f, g and o
  const T* initial = nullptr;       // h: [batch, projected]
  const T* initial_cell = nullptr;  // c: [batch, hidden]
  const T* weight = nullptr;        // [4 * hidden, projected]
  const T* bias = nullptr;          // [4 * hidden] or null
  const T* projection = nullptr;    // P: [projected, hidden] or null
  Sequence<T> output;               // h: [steps, batch, projected]; zero after the end of a row
  T* final_state = nullptr;         // [batch, projected]
  T* final_cell = nullptr;          // [batch, hidden]
  Sequence<T> gates;                // [steps, batch, 5 * hidden]: i, f, g, o and c for backward; null if not needed
};

template <class T>
struct LstmBackward {
  Extent extent;
  std::int64_t projected = 0;
  Sequence<const T> grad_output;       // null if undefined
  const T* grad_final = nullptr;       // null if undefined
  const T* grad_final_cell = nullptr;  // null if undefined
  Sequence<const T> gates;
  Sequence<const T> output;
  const T* initial = nullptr;
  const T* initial_cell = nullptr;
  const T* weight = nullptr;
  const T* projection = nullptr;
  Sequence<T> grad_input;      // also the gradient of W h + b
  Sequence<T> previous;        // [steps, batch, projected]: h before each step; zero after the end of a row
  Sequence<T> unprojected;     // [steps, batch, hidden]: o * tanh(c); null without projection
  Sequence<T> grad_projected;  // [steps, batch, projected]: the gradient of P (o * tanh(c)); null without projection
  T* grad_initial = nullptr;   // [batch, projected]
  T* grad_initial_cell = nullptr;  // [batch, hidden]
};

}  // namespace weft::time_parallel
