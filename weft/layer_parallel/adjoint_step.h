// Backward through one recorded evaluation of a layer.
#pragma once

#include <cstdint>
#include <functional>

#include "weft/layer_parallel/evaluator.h"

namespace weft::layer_parallel {

// The gradients of weights that an adjoint step computes besides the gradient of the state.
struct WeightGradients {
  // Called with the gradients of a layer's parameters and of the extra tensors; some may be undefined.
  using Collect = std::function<void(std::int64_t layer, const Tensors& gradients)>;
  const Tensors* extras;    // further tensors that need gradients, as the layers use them
  bool keep_graph = false;  // keep the autograd graph for another backward pass
  Collect collect;
};

// Returns the gradient of the state before a step of size dt, given the gradient of the state after it. Without
// `weights`, it computes only this gradient and keeps the graph. Throws LayerError if the layer's backward throws.
[[nodiscard]] Tensors adjoint_step(LayerEvaluator& evaluator, std::int64_t layer, const Recorded& recorded,
                                   const Tensors& gradient, double dt, const WeightGradients* weights);

}  // namespace weft::layer_parallel
