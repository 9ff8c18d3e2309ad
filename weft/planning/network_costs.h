// The measured costs of a network's layers, from which the graphs of a training step are built.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::planning {

// Seconds of one evaluation with the whole batch.
struct LayerCosts {
  double forward = 0;           // without a graph
  double recorded = 0;          // with a graph for backward
  double adjoint = 0;           // backward without the gradients of the weights
  double weighted_adjoint = 0;  // backward with the gradients of the weights
  std::int64_t parameter_bytes = 0;
};

struct NetworkCosts {
  std::vector<LayerCosts> layers;
  double combine = 0;  // the sum of two states
  double norm = 0;     // the norm of a state
  double loss = 0;     // the loss and its gradient
  double fixed = 0;    // work of every rank that does not depend on the number of layers
  std::int64_t state_bytes = 0;
};

}  // namespace weft::planning
