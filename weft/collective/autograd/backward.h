// anchor, backward and grad: backward passes that run all recorded communication on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace weft::collective {

// Attaches all communication recorded on the current tape to a tensor, and empties the tape.
// x: a tensor of a floating-point or complex type.
// Returns a tensor equal to x whose backward runs the recorded communication; x itself if the tape is empty.
// Throws c10::Error for other types. Not collective.
[[nodiscard]] at::Tensor anchor(const at::Tensor& x);

// Runs backward from `loss` through all recorded communication and accumulates gradients into the leaves. The gradients
// are those of the sum of all ranks' losses.
// Collective: every rank that recorded communication must call it.
// loss: this rank's loss; nullopt if it has none. gradient: the gradient of the loss; required unless it has 1 element.
// Throws c10::Error for invalid arguments; if one rank fails, the others throw mpi::PeerLost.
void backward(const std::optional<at::Tensor>& loss, const std::optional<at::Tensor>& gradient = std::nullopt,
              bool retain_graph = false, bool create_graph = false);

// Like backward(), but returns the gradients of `inputs` instead of accumulating them; zeros for unused inputs.
[[nodiscard]] std::vector<at::Tensor> grad(const std::optional<at::Tensor>& loss, const std::vector<at::Tensor>& inputs,
                                           const std::optional<at::Tensor>& gradient = std::nullopt,
                                           bool retain_graph = false, bool create_graph = false);

}  // namespace weft::collective

namespace weft {
using collective::anchor;
using collective::backward;
using collective::grad;
}  // namespace weft
