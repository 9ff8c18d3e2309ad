// Scale and shift of layers that normalize each image separately.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/spatial/share.h"

namespace weft::experiment {

struct AffineSettings {
  bool wanted = true;     // whether normalized values get a scale and a shift
  double epsilon = 1e-5;  // added to the variance
};

[[nodiscard]] inline AffineSettings read_affine(Fields& fields, bool wanted) {
  return {fields.boolean("affine").value_or(wanted), fields.number("epsilon", kNonNegative).value_or(1e-5)};
}

// Returns weight and bias of this shape, whole on every rank; none if the layer has no scale and shift.
[[nodiscard]] inline std::vector<spatial::nn::Parameter> affine_parameters(const LayerContext& context,
                                                                           const AffineSettings& settings,
                                                                           const Sizes& shape) {
  if (!settings.wanted) return {};
  const auto options = at::TensorOptions().dtype(context.type);
  return {spatial::nn::whole_parameter(context.spec.name + ".weight", at::ones(shape, options)),
          spatial::nn::whole_parameter(context.spec.name + ".bias", at::zeros(shape, options))};
}

[[nodiscard]] inline spatial::Affine affine_tensors(const std::vector<spatial::nn::Parameter>& parameters) {
  if (parameters.empty()) return {};
  return {parameters[0].value, parameters[1].value};
}

}  // namespace weft::experiment
