// The recurrences of ParaRNN's cells, fused and differentiable: their recurrent weights are diagonal.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace weft::time_parallel {

// Runs the recurrence of a ParaGRU (kernels/para_gru_cell.h) or ParaLSTM (kernels/para_lstm_cell.h).
//
// input: the products with the input and biases, [steps, batch, 3 * hidden], time-major or a transposed batch-major
// tensor. initial: [batch, states * hidden]. weight: [3, hidden] for ParaGRU and [5, hidden] for ParaLSTM.
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

// Independent steps at given states; see linearize.h. The Jacobians, [rows, states, states, hidden], are exact.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> para_gru_linearize(const at::Tensor& input, const at::Tensor& before,
                                                                    const at::Tensor& weight);
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> para_lstm_linearize(const at::Tensor& input, const at::Tensor& before,
                                                                     const at::Tensor& weight);

}  // namespace weft::time_parallel
