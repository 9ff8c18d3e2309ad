// anchor, backward and grad: backward passes that perform all recorded communication on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace weft::collective {

// A tensor equal to `x` whose backward performs all communication recorded on the current tape. Starts a new tape
// region. Without recorded communication it returns `x` itself.
[[nodiscard]] at::Tensor anchor(const at::Tensor& x);

// Collective in effect: every rank that recorded communication calls it. Backward from `loss` (an absent one stands for
// a rank that has none) through everything recorded. Gradients are those of the sum of all ranks' losses.
void backward(const std::optional<at::Tensor>& loss, const std::optional<at::Tensor>& gradient = std::nullopt,
              bool retain_graph = false, bool create_graph = false);

// As backward, but returns the gradients of `inputs` (zeros where there is none) instead of accumulating them.
[[nodiscard]] std::vector<at::Tensor> grad(const std::optional<at::Tensor>& loss, const std::vector<at::Tensor>& inputs,
                                           const std::optional<at::Tensor>& gradient = std::nullopt,
                                           bool retain_graph = false, bool create_graph = false);

}  // namespace weft::collective

namespace weft {
using collective::anchor;
using collective::backward;
using collective::grad;
}  // namespace weft
