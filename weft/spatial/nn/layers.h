// Factories for layers on tiles. Weights are this rank's tensors; the layers accept inputs on the meta device.
#pragma once

#include <functional>

#include "weft/spatial/convolution/convolution.h"
#include "weft/spatial/nn/layer.h"
#include "weft/spatial/pooling.h"

namespace weft::spatial::nn {

// Returns a layer that calls `function`. `region_layer` implements Layer::region_layer(); without it, the layer ends a
// region.
[[nodiscard]] LayerPtr function_layer(std::function<Activations(const Activations&, const ForwardContext&)> function,
                                      std::function<std::optional<RegionLayer>(std::size_t)> region_layer = nullptr);
// Returns a layer that calls `function` with tiles and throws (TORCH_CHECK) an error with `name` if its input is not
// tiled.
[[nodiscard]] LayerPtr on_tiles(std::string name, std::function<Activations(const DistTensor&)> function,
                                std::function<std::optional<RegionLayer>(std::size_t)> region_layer = nullptr);

// Return layers with the functions of these names in weft/spatial. Their forward() is collective.
[[nodiscard]] LayerPtr convolution(const at::Tensor& weight, const OptionalTensor& bias,
                                   const ConvolutionOptions& options);
[[nodiscard]] LayerPtr transposed_convolution(const at::Tensor& weight, const OptionalTensor& bias,
                                              const TransposedConvolutionOptions& options);
[[nodiscard]] LayerPtr max_pool(const PoolingOptions& options);
// Returns an elementwise layer: `function` computes each cell from the same cell of its input.
[[nodiscard]] LayerPtr elementwise(std::function<at::Tensor(const at::Tensor&)> function);
// Returns a dropout layer. Masks derive from `seed`, which must be the same on all ranks, and ForwardContext::step.
[[nodiscard]] LayerPtr dropout(double p, std::uint64_t seed, bool whole_channels = false);
// Returns a fully connected layer. Its forward() is collective. `weight` holds the columns of this rank's inputs. With
// `outputs` each rank gets its part of the outputs, and `bias` holds that part; without it every rank gets all outputs.
[[nodiscard]] LayerPtr linear(const at::Tensor& weight, const OptionalTensor& bias, const LayoutPtr& outputs = nullptr);

}  // namespace weft::spatial::nn
