// Linear recurrences over all steps of a sequence piece; see kernels/linear_scan_kernel.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace weft::time_parallel {

// Solves s[t] = J[t] s[t-1] + r[t] in place of r, or the adjoint recurrence, which runs from the last step to the
// first.
//
// jacobian: [steps, batch, blocks, blocks, lanes]. right_hand: [steps, batch, blocks * lanes], contiguous.
// start: the value before the first step, [batch, blocks * lanes]; zero if nothing is given.
// Returns the value after the last step: s of that step, or J[0]^T s[0] of the adjoint recurrence.
at::Tensor linear_scan_(const at::Tensor& jacobian, const at::Tensor& right_hand,
                        const std::optional<at::Tensor>& start, bool adjoint);

// Returns (product, end): the recurrence maps a start to product * start + end. product: [batch, blocks, blocks,
// lanes].
std::tuple<at::Tensor, at::Tensor> linear_scan_summary(const at::Tensor& jacobian, const at::Tensor& right_hand,
                                                       bool adjoint);

// Adds the response of the recurrence to a start: solution[t] += J[t] ... J[0] start. solution: like right_hand.
void add_linear_response_(const at::Tensor& jacobian, const at::Tensor& solution, const at::Tensor& start);

}  // namespace weft::time_parallel
