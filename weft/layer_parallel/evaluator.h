// Evaluates layers as pure functions: restores buffers, on request, and random number generators.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/layer_store.h"
#include "weft/layer_parallel/randomness.h"

namespace weft::layer_parallel {

// A layer threw. The message names the layer; the original exception is nested.
class LayerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An evaluation with its autograd graph.
struct Recorded {
  Tensors input;   // leaves of the graph
  Tensors output;  // output of the layer's function, without the x + dt * ... of Form::kResidual
};

// Keep or restore the buffers that a layer changes.
enum class Buffers : std::int8_t { kKeep, kRestore };

class LayerEvaluator {
 public:
  LayerEvaluator(LayerStore& layers, RandomScope& random) : layers_(layers), random_(random) {}

  // Returns the next state, without gradients.
  [[nodiscard]] Tensors next(std::int64_t number, const Tensors& x, double dt, Buffers buffers);
  // Returns the value of the layer's function and its graph, from leaves that share memory with x.
  [[nodiscard]] Recorded record(std::int64_t number, const Tensors& x, double dt, Buffers buffers);
  // Returns the next state from a recorded evaluation.
  [[nodiscard]] Tensors next(std::int64_t number, const Recorded& recorded, double dt);

  [[nodiscard]] Layer& layer(std::int64_t number) { return layers_[number]; }

 private:
  [[nodiscard]] Tensors call(std::int64_t number, const Tensors& x, double dt, Buffers buffers);

  LayerStore& layers_;
  RandomScope& random_;
};

}  // namespace weft::layer_parallel
