// Steps of the built-in cells at given states, all at once, with their Jacobians by the states: one iteration of
// Newton's method. The rows are independent of each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace weft::time_parallel {

// input: [rows, gates * hidden], the products with the input of each row. before: the states, [rows, states * hidden].
// weight, bias: as in torch.nn.GRU and torch.nn.LSTM (without projection). implicit_step: as for gru_sequence().
// full: the exact Jacobian, [rows, states * hidden, states * hidden, 1]. Otherwise only the diagonals of its blocks,
// [rows, states, states, hidden]. Returns the states after the steps and the Jacobians.
std::tuple<at::Tensor, at::Tensor> gru_linearize(const at::Tensor& input, const at::Tensor& before,
                                                 const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                                 bool full, double implicit_step = 0);
std::tuple<at::Tensor, at::Tensor> lstm_linearize(const at::Tensor& input, const at::Tensor& before,
                                                  const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                                  bool full);

}  // namespace weft::time_parallel
