// The recurrence of a GRU, fused and differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace weft::time_parallel {

// Runs the recurrence of a GRU with torch.nn.GRU's equations and weight layout.
//
// input: W x + b of all steps, [steps, batch, 3 * hidden], time-major or a transposed batch-major tensor.
// initial: [batch, hidden]. weight: [3 * hidden, hidden]. bias: [3 * hidden] or nothing.
// lengths: the number of steps of each row (int64, CPU); all steps if nothing is given. The outputs of later steps are
// 0. reverse: from the last step of each row to its first. implicit_step: the step of an implicit GRU; 0 for an
// explicit one (kernels/gru_kernel.h). Returns the states after each step and the final states. Differentiable twice.
// Not collective. Throws ValueError (TORCH_CHECK_VALUE) for arguments that do not fit together.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> gru_sequence(const at::Tensor& input, const at::Tensor& initial,
                                                              const at::Tensor& weight,
                                                              const std::optional<at::Tensor>& bias,
                                                              const std::optional<at::Tensor>& lengths, bool reverse,
                                                              double implicit_step = 0);

}  // namespace weft::time_parallel
