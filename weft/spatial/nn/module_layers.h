// Conversion of a torch::nn module to a layer on tiles.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "weft/spatial/nn/layer.h"

namespace weft::spatial::nn {

using ModulePtr = std::shared_ptr<torch::nn::Module>;

// Returns the class of a module without its namespace, e.g. "Conv2dImpl".
[[nodiscard]] std::string kind_of(const torch::nn::Module& module);

// Returns a layer that uses the module's parameters and its training flag. On whole tensors it calls the module.
// `name` is the module's name in errors. Dropout masks derive from `seed`, which must be the same on all ranks.
// Throws (NotImplementedError) if the module cannot be split.
[[nodiscard]] LayerPtr layer_of(const std::string& name, const ModulePtr& module, std::int64_t seed);

}  // namespace weft::spatial::nn
