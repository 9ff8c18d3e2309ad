// The products of the input of all steps with a layer's weights, which the recurrence then adds to its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace weft::time_parallel {

// Returns x weight^T + bias in pooled memory, in the memory order of x. x: [steps, batch, features], time-major or a
// transposed batch-major tensor. weight: [outputs, features]. First and second derivatives are supported.
[[nodiscard]] at::Tensor input_products(const at::Tensor& x, const at::Tensor& weight,
                                        const std::optional<at::Tensor>& bias);

}  // namespace weft::time_parallel
