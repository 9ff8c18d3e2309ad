// What flows between the layers of a split network of torch's C++ frontend, and a layer's step on it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Tiles that were flattened, for a linear layer to take.
struct Flattened {
  DistTensor tiles;
};
// Tiles, flattened tiles, or a tensor that every rank holds whole.
using Flow = std::variant<DistTensor, Flattened, at::Tensor>;
using Run = std::function<Flow(const Flow&)>;
using ModulePtr = std::shared_ptr<torch::nn::Module>;

// A weight as the step needs it: without data where the input has none.
[[nodiscard]] at::Tensor matching(const at::Tensor& weight, const at::Tensor& x);
[[nodiscard]] std::optional<at::Tensor> matching_or_none(const at::Tensor& weight, const at::Tensor& x);

// A step for tiles; a tensor that is whole goes through the module itself.
template <class Module, class OnTiles>
[[nodiscard]] Run on_tiles(const std::shared_ptr<Module>& module, OnTiles&& tiles) {
  return [module, tiles](const Flow& x) -> Flow {
    if (const auto* whole = std::get_if<at::Tensor>(&x)) return module->forward(*whole);
    const auto* dist = std::get_if<DistTensor>(&x);
    TORCH_CHECK_NOT_IMPLEMENTED(dist != nullptr, "weft: expected tiles that are not flattened");
    return tiles(*module, *dist);
  };
}

}  // namespace weft::spatial
