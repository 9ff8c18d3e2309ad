// Evaluates layers: as fixed functions, without traces in buffers and random numbers unless asked to leave them.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/layer_store.h"
#include "weft/layer_parallel/randomness.h"

namespace weft::layer_parallel {

// A layer threw; the text names it, and the original exception is nested inside.
class LayerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One evaluation, kept with its autograd graph.
struct Recorded {
  Tensors input;   // leaves
  Tensors output;  // of the layer's function: without x + dt * ... of Form::kResidual
};

// What happens to buffers that a layer changes.
enum class Buffers : std::int8_t { kKeep, kRestore };

class Evaluator {
 public:
  Evaluator(LayerStore& layers, RandomScope& random) : layers_(layers), random_(random) {}

  // The next state, without gradients.
  [[nodiscard]] Tensors next(std::int64_t number, const Tensors& x, double dt, Buffers buffers);
  // The function's value with its graph, from leaves that share memory with x.
  [[nodiscard]] Recorded record(std::int64_t number, const Tensors& x, double dt, Buffers buffers);
  // The next state from a recorded evaluation.
  [[nodiscard]] Tensors next(std::int64_t number, const Recorded& recorded, double dt);

  [[nodiscard]] Layer& layer(std::int64_t number) { return layers_[number]; }

 private:
  [[nodiscard]] Tensors call(std::int64_t number, const Tensors& x, double dt, Buffers buffers);

  LayerStore& layers_;
  RandomScope& random_;
};

}  // namespace weft::layer_parallel
