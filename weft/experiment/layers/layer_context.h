// The input and the result of building a layer of an experiment for this rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "weft/experiment/file/layer_spec.h"
#include "weft/experiment/layers/mesh.h"
#include "weft/spatial/nn/layer.h"

namespace weft::experiment {

struct LayerContext {
  const LayerSpec& spec;
  const LayerSizes& sizes;
  const Mesh& mesh;
  std::uint64_t seed;
  std::size_t number;  // differs between layers; selects the random numbers of weights and masks
  at::ScalarType type;
  bool outputs_in_parts;      // a fully connected layer follows, so no rank needs the whole vector
  spatial::LayoutPtr inputs;  // null if the input is whole on every rank
};

// The last residuals that a multigrid solver computed, forward and backward.
struct SolverResiduals {
  std::optional<double> forward{};
  std::optional<double> backward{};
};

struct BuiltLayer {
  spatial::nn::LayerPtr layer;
  spatial::LayoutPtr outputs;  // null if the output is whole on every rank
  // Returns the last residuals of the layer's solver; null for layers without one.
  std::function<SolverResiduals()> residuals{};
};

}  // namespace weft::experiment
