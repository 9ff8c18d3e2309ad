// Recurrences whose units depend only on themselves, as in ParaRNN (ParaGRU and ParaLSTM). A step needs no matrix
// product, and its exact Jacobian consists of diagonal blocks.
#pragma once

#include "weft/time_parallel/kernels/sequence.h"

namespace weft::time_parallel {

// The number of arrays of `hidden` elements that a cell has per step.
struct DiagonalShape {
  std::int64_t states;   // the first is the output
  std::int64_t inputs;   // products with the input, one per gate
  std::int64_t weights;  // factors of the states, then a bias per gate; equal for all steps
  std::int64_t gates;    // values of a step that its derivatives use
};
inline constexpr DiagonalShape kParaGru{1, 3, 6, 3};
inline constexpr DiagonalShape kParaLstm{2, 3, 8, 4};

template <class T>
struct DiagonalForward {
  Extent extent;
  Sequence<const T> input;     // [steps, batch, inputs * hidden]
  const T* initial = nullptr;  // [batch, states * hidden]
  const T* weight = nullptr;   // [weights, hidden]
  Sequence<T> output;          // [steps, batch, hidden]; zero after the end of a row
  T* final_state = nullptr;    // [batch, states * hidden]
  Sequence<T> carried;         // [steps, batch, (states - 1) * hidden]: states besides the output; null if not needed
};

// Computes the gates again: that takes less time than storing and loading them.
template <class T>
struct DiagonalBackward {
  Extent extent;
  Sequence<const T> input;
  Sequence<const T> grad_output;  // null if undefined
  const T* grad_final = nullptr;  // null if undefined
  Sequence<const T> output;
  Sequence<const T> carried;
  const T* initial = nullptr;
  const T* weight = nullptr;
  Sequence<T> grad_input;
  T* grad_initial = nullptr;  // [batch, states * hidden]
  T* grad_weight = nullptr;   // [weights, hidden]: the sum over the extent is added
};

// An iteration of Newton's method: linearises all steps at given states and solves the linear recurrence.
template <class T>
struct DiagonalSweep {
  Extent extent;              // arrays are in the order of the recurrence; `reverse` only concerns the lengths
  Sequence<const T> input;    // [steps, batch, inputs * hidden]
  const T* weight = nullptr;  // [weights, hidden]
  T scale = 1;                // factor of the Jacobians
  Sequence<const T> before;  // [1 + steps, batch, states * hidden]: the state before the first step and after each step
  Sequence<T> after;         // the new states; the first one stays
  T* change = nullptr;       // [batch, states * hidden]: after - before in the last step
  T* largest = nullptr;      // [batch]: the largest residual of each row; NaN if one of them is
  Sequence<T> jacobian;      // [steps, batch, states * states * hidden]; null if not needed
  T* product = nullptr;      // [batch, states, states, hidden]: the product of all Jacobians; null if not needed
};

}  // namespace weft::time_parallel
