// Recurrences with torch's operations: for second derivatives and for cells without kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace weft::time_parallel {

using Tensors = std::vector<at::Tensor>;

// Applies `step` to every step of `input` [steps, batch, features], in order or in reverse.
// lengths: the number of steps of each row; later steps keep the state and have the output 0.
// Returns the first state tensor after each step, and the final states.
[[nodiscard]] std::pair<at::Tensor, Tensors> run_steps(
    const at::Tensor& input, Tensors states, const std::optional<at::Tensor>& lengths, bool reverse,
    const std::function<Tensors(const at::Tensor& x, const Tensors& states)>& step);

// Returns the gradients of forward()'s results by `inputs` as a differentiable function, padded with undefined tensors
// to `count`. Undefined inputs and inputs that need no gradient get undefined gradients.
[[nodiscard]] Tensors differentiable_gradients(const Tensors& inputs, const Tensors& grads, std::size_t count,
                                               const std::function<Tensors()>& forward);

// True if autograd records operations on one of the defined tensors.
[[nodiscard]] bool needs_gradient(const Tensors& tensors);

}  // namespace weft::time_parallel
