// Convolution of tiles: each rank computes its tile of the result from its tile and the halo around it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// How the halo enters the convolution. The result is the same.
//   kApart: convolves the tile in place while the halo is in flight, then adds the halo's share at the edges. Copies
//     nothing large.
//   kPadded: copies the tile and its halo into one buffer. Always works, and is faster if tiles are hardly larger than
//     halos.
//   kAuto: selects one of them.
enum class Edges { kAuto, kApart, kPadded };

// Each list has one value for all dimensions or one value per dimension.
struct ConvolutionOptions {
  Sizes stride{1};
  Sizes padding{0};
  Sizes padding_behind{};  // padding after the field; empty if it equals `padding`
  Sizes dilation{1};
  std::int64_t groups = 1;
  partition::Border border = partition::Border::kZeros;
  Edges edges = Edges::kAuto;
};

struct TransposedConvolutionOptions {
  Sizes stride{1};
  Sizes padding{0};
  Sizes output_padding{0};
  Sizes dilation{1};
  std::int64_t groups = 1;
};

// Weights must be the same on all ranks; their gradients are summed over the ranks. Collective.
[[nodiscard]] DistTensor convolution(const DistTensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                                     const ConvolutionOptions& options = {});

[[nodiscard]] DistTensor transposed_convolution(const DistTensor& x, const at::Tensor& weight,
                                                const OptionalTensor& bias,
                                                const TransposedConvolutionOptions& options = {});

// Returns the windows of a convolution in `dims` dimensions.
[[nodiscard]] std::vector<partition::Window> windows_of(std::size_t dims, const at::Tensor& weight,
                                                        const ConvolutionOptions& options);

// A convolution whose weights belong to this rank alone: gradients are not summed.
[[nodiscard]] DistTensor convolution_with_own_weights(const DistTensor& x, const at::Tensor& weight,
                                                      const OptionalTensor& bias, const ConvolutionOptions& options);

}  // namespace weft::spatial
