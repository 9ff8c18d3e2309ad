// The loss of a micro-batch and its gradients, computed while the pipeline is running.
#pragma once

#include <functional>

#include "weft/layer_parallel/layer.h"
#include "weft/partition/range.h"

namespace weft::layer_parallel {

using LossFunction = std::function<at::Tensor(const Tensors& output, partition::Range rows)>;

struct LossGradient {
  at::Tensor loss;  // without a graph
  Tensors output_gradient;
  Tensors leaves;  // tensors that the loss depends on and that accumulate gradients, such as weights of closing layers
  Tensors leaf_gradients;
};

// Evaluates the loss of an output and, if `gradients`, differentiates it. Throws (TORCH_CHECK) unless it is a scalar.
[[nodiscard]] LossGradient differentiate_loss(const LossFunction& loss, const Tensors& output, partition::Range rows,
                                              bool gradients);

// Adds a gradient to that of the same leaf in `leaves`, or appends both.
void add_gradient(const at::Tensor& leaf, const at::Tensor& gradient, Tensors& leaves, Tensors& gradients);

}  // namespace weft::layer_parallel
