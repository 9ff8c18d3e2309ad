// The recurrence of an LSTM, fused and differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace weft::time_parallel {

// Runs the recurrence of an LSTM with torch.nn.LSTM's equations and weight layout.
//
// input: W x + b of all steps, [steps, batch, 4 * hidden], time-major or a transposed batch-major tensor.
// initial: h, [batch, projected]. initial_cell: c, [batch, hidden]. weight: [4 * hidden, projected].
// bias: [4 * hidden] or nothing. projection: [projected, hidden] or nothing; then projected equals hidden.
// lengths, reverse: as for gru_sequence().
// Returns h after each step, and the final h and c. Differentiable twice. Not collective.
// Throws ValueError (TORCH_CHECK_VALUE) for arguments that do not fit together.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_sequence(
    const at::Tensor& input, const at::Tensor& initial, const at::Tensor& initial_cell, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& projection,
    const std::optional<at::Tensor>& lengths, bool reverse);

}  // namespace weft::time_parallel
