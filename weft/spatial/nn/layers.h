// Factories for layers on tiles. Weights are this rank's tensors; the layers accept inputs on the meta device.
#pragma once

#include <functional>

#include "weft/spatial/convolution/convolution.h"
#include "weft/spatial/nn/layer.h"
#include "weft/spatial/normalization.h"
#include "weft/spatial/pooling.h"

namespace weft::spatial::nn {

// A layer that calls `function`.
[[nodiscard]] LayerPtr function_layer(std::function<Activations(const Activations&, const ForwardContext&)> function);
// Returns a layer that calls `function` with tiles and throws if its input is not tiled.
[[nodiscard]] LayerPtr on_tiles(std::string name, std::function<Activations(const DistTensor&)> function);

[[nodiscard]] LayerPtr convolution(const at::Tensor& weight, const OptionalTensor& bias,
                                   const ConvolutionOptions& options);
[[nodiscard]] LayerPtr transposed_convolution(const at::Tensor& weight, const OptionalTensor& bias,
                                              const TransposedConvolutionOptions& options);
[[nodiscard]] LayerPtr max_pool(const PoolingOptions& options);
// `function` computes each cell from the same cell of its input.
[[nodiscard]] LayerPtr elementwise(std::function<at::Tensor(const at::Tensor&)> function);
// Masks derive from `seed`, which must be the same on all ranks, and ForwardContext::step.
[[nodiscard]] LayerPtr dropout(double p, std::uint64_t seed, bool whole_channels = false);
// A fully connected layer. `weight` holds the columns of this rank's inputs. With `outputs` each rank gets its part of
// the outputs, and `bias` holds that part; without it every rank gets all outputs.
[[nodiscard]] LayerPtr linear(const at::Tensor& weight, const OptionalTensor& bias, const LayoutPtr& outputs = nullptr);

// Returns the weight, or an empty tensor of its shape on the meta device if `x` is on it.
[[nodiscard]] at::Tensor matching(const at::Tensor& weight, const at::Tensor& x);
[[nodiscard]] OptionalTensor matching(const OptionalTensor& weight, const at::Tensor& x);

}  // namespace weft::spatial::nn
