// Shared parts of the registrations of operations with torch's dispatcher, through which Python calls them. Each file
// registers the operations that it implements.
#pragma once

#include <torch/library.h>

#include <tuple>

#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// A tiled tensor in the form that the dispatcher can pass.
using Tiled = std::tuple<at::Tensor, LayoutPtr>;
[[nodiscard]] inline Tiled unpacked(const DistTensor& y) { return {y.local, y.layout}; }
[[nodiscard]] inline at::Tensor unpacked(const at::Tensor& y) { return y; }

// Adapts a function of tiles to the dispatcher: `call` takes the tensor and its layout separately.
template <auto kFunction>
struct TileOperation;
template <class Result, class... Arguments, Result (*kFunction)(const DistTensor&, Arguments...)>
struct TileOperation<kFunction> {
  static auto call(const at::Tensor& x, const LayoutPtr& layout, Arguments... arguments) {
    return unpacked(kFunction({x, layout}, arguments...));
  }
};

// Registers RankGrid, Layout and HaloPlan. Registrations of operations on them call it first, because the order of
// static initialization is not defined. Later calls have no effect.
void register_classes();

}  // namespace weft::spatial
