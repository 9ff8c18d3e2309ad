// The recurrences of ParaRNN's cells, fused and differentiable: their recurrent weights are diagonal.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace weft::time_parallel {

// Runs the recurrence of a ParaGRU (kernels/para_gru_cell.h) or ParaLSTM (kernels/para_lstm_cell.h).
//
// input: the products with the input, [steps, batch, 3 * hidden], time-major or a transposed batch-major tensor.
// initial: [batch, states * hidden]. weight: the factors of the states and the biases of the gates, [3 + 3, hidden] for
// ParaGRU and [5 + 3, hidden] for ParaLSTM.
// lengths: the number of steps of each row (int64, CPU); all steps if nothing is given. The outputs of later steps are
// 0. reverse: from the last step of each row to its first. Returns h after each step, and the final states.
// First and second derivatives are supported. Throws c10::Error for arguments that do not fit.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> para_gru_sequence(const at::Tensor& input, const at::Tensor& initial,
                                                                   const at::Tensor& weight,
                                                                   const std::optional<at::Tensor>& lengths,
                                                                   bool reverse);
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> para_lstm_sequence(const at::Tensor& input, const at::Tensor& initial,
                                                                    const at::Tensor& weight,
                                                                    const std::optional<at::Tensor>& lengths,
                                                                    bool reverse);

// An iteration of Newton's method over all steps of a piece of the sequence.
struct Sweep {
  at::Tensor states;   // the solution of the linearised recurrence: [1 + steps, batch, states * hidden]
  at::Tensor largest;  // the largest residual of each row at the given states; NaN if one of them is
  at::Tensor change;   // of the states after the last step: [batch, states * hidden]
  // Defined if a summary is wanted: the exact Jacobians of all steps, [steps, batch, states, states, hidden], and their
  // product, [batch, states, states, hidden]. If the state before the piece changes by d, `change` grows by product *
  // d.
  at::Tensor jacobian, product;
};

// states: the state before the first step and after each step, [1 + steps, batch, states * hidden]. All arrays are in
// the order of the recurrence; `reverse` states that it is the reverse of the sequence's, to which `lengths` refers.
// scale: a factor of the Jacobians, below 1 for damping. The other arguments are those of para_gru_sequence.
[[nodiscard]] Sweep para_gru_sweep(const at::Tensor& input, const at::Tensor& states, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& lengths, bool reverse, double scale, bool summary);
[[nodiscard]] Sweep para_lstm_sweep(const at::Tensor& input, const at::Tensor& states, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& lengths, bool reverse, double scale, bool summary);

}  // namespace weft::time_parallel
