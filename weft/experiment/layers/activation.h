// Activations: layers of their own, or the last step of another layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/experiment/file/layer_type.h"
#include "weft/spatial/nn/layer.h"

namespace weft::experiment {

[[nodiscard]] at::Tensor activated(const at::Tensor& x, const Activation& activation);
// Returns `layer` followed by the activation, with the parameters of `layer`.
[[nodiscard]] spatial::nn::LayerPtr with_activation(spatial::nn::LayerPtr layer, const Activation& activation);

// Replaces a logistic activation by the identity. Returns false for other activations.
bool remove_logistic(Activation& activation);

// Reads `activation: relu` and the setting of that activation. `otherwise` is the default.
[[nodiscard]] Activation read_activation(Fields& fields, const std::string& otherwise);
// Reads `activation: !obj:neon.transforms...`.
[[nodiscard]] Activation read_neon_activation(Fields& fields);

}  // namespace weft::experiment
