// One layer of torch's C++ frontend as a step on tiles.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Tiles that were flattened, for a linear layer to take.
struct Flattened {
  DistTensor tiles;
};
// What flows between layers: tiles, flattened tiles, or a tensor that every rank holds whole.
using Flow = std::variant<DistTensor, Flattened, at::Tensor>;

struct LayerStep {
  std::string name;
  std::string kind;
  std::function<Flow(const Flow&)> run;
};

// Throws (NotImplementedError) naming the layer where it cannot be split. The step uses the module's own parameters.
[[nodiscard]] LayerStep step_of(const std::string& name, const std::shared_ptr<torch::nn::Module>& module);

// A weight as the step needs it: without data where the input has none.
[[nodiscard]] at::Tensor matching(const at::Tensor& weight, const at::Tensor& x);

}  // namespace weft::spatial
