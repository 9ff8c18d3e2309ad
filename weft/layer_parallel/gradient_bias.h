// The bias of a gradient: its error relative to the exact gradient.
#pragma once

#include "weft/layer_parallel/network.h"
#include "weft/mpi/communicator.h"

namespace weft::layer_parallel {

struct GradientBias {
  // The norm of the error divided by the norm of the exact gradient: the larger value of all weights together and of
  // the input, if they require grad. A parameter that several ranks share counts once for each of them.
  double bias = 0;
  double cosine = 1;  // of the angle between the gradients of all weights
  double norm = 0;    // of the exact gradient of all weights
};

// Collective. Compares the gradients of a network's weights and input; the result is equal on all ranks.
[[nodiscard]] GradientBias compare_gradients(const DifferentiatedLoss& approximation, const DifferentiatedLoss& exact,
                                             Communicator& communicator);

}  // namespace weft::layer_parallel
