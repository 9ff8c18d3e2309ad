// Recurrences whose units depend only on themselves, as in ParaRNN (ParaGRU and ParaLSTM). A step needs no matrix
// product, and its exact Jacobian consists of diagonal blocks.
#pragma once

#include "weft/time_parallel/kernels/sequence.h"

namespace weft::time_parallel {

// The number of arrays of `hidden` elements that a cell has per step.
struct DiagonalShape {
  std::int64_t states;   // the first is the output
  std::int64_t inputs;   // products with the input, one per gate
  std::int64_t weights;  // factors of the states, equal for all steps
  std::int64_t gates;    // values of a step that its derivatives use
};
inline constexpr DiagonalShape kParaGru{1, 3, 3, 3};
inline constexpr DiagonalShape kParaLstm{2, 3, 5, 4};

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

// Independent steps at given states, and their Jacobians.
template <class T>
struct DiagonalLinearize {
  std::int64_t first_row = 0;
  std::int64_t end_row = 0;
  std::int64_t hidden = 0;
  const T* input = nullptr;   // [rows, inputs * hidden]
  const T* before = nullptr;  // [rows, states * hidden]
  const T* weight = nullptr;
  T* next = nullptr;      // [rows, states * hidden]
  T* jacobian = nullptr;  // [rows, states, states, hidden]
};

}  // namespace weft::time_parallel
