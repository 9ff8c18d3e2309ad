// Evaluates layers as pure functions: restores buffers, on request, and random number generators.
#pragma once

#include <cstdint>
#include <string>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/layer_store.h"
#include "weft/layer_parallel/pass_functions.h"
#include "weft/layer_parallel/randomness.h"

namespace weft::layer_parallel {

// An evaluation with its autograd graph.
struct Recorded {
  Tensors input;   // leaves of the graph
  Tensors output;  // output of the layer's function, without the x + dt * ... of Form::kResidual
};

class LayerEvaluator {
 public:
  LayerEvaluator(LayerStore& layers, RandomScope& random, const PassFunctions& functions)
      : layers_(layers), random_(random), functions_(functions) {}

  // Returns the value of the layer's function in the current grad mode.
  [[nodiscard]] Tensors call(std::int64_t number, const Tensors& x, double dt, Buffers buffers);
  // Returns the next state, without gradients.
  [[nodiscard]] Tensors next(std::int64_t number, const Tensors& x, double dt, Buffers buffers);
  // Returns the value of the layer's function and its graph, from leaves that share memory with x.
  [[nodiscard]] Recorded record(std::int64_t number, const Tensors& x, double dt, Buffers buffers);
  // Returns the next state from a recorded evaluation.
  [[nodiscard]] Tensors next(std::int64_t number, const Recorded& recorded, double dt);

  [[nodiscard]] Layer& layer(std::int64_t number) { return layers_[number]; }
  // Layers of the same kind map states of equal layout to states of equal layout. Empty if the kind is unknown.
  [[nodiscard]] std::string kind(std::int64_t number);

 private:
  LayerStore& layers_;
  RandomScope& random_;
  const PassFunctions& functions_;
};

// Rethrows the current exception as LayerError (Interrupted stays Interrupted), with the layer in its message and the
// original exception nested. Call it in a handler.
[[noreturn]] void rethrow_as_layer_error(std::int64_t number, const Layer& layer);

}  // namespace weft::layer_parallel
