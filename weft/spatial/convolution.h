// Convolution of tiles: each rank computes its tile of the result from its tile and the halo around it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Where the halo goes. Apart: the tile is convolved where it lies, while the halo travels, and its edges again when
// that has come; nothing large is copied or kept. Padded: the tile is copied into a buffer with its halo around it,
// which is better where tiles are hardly larger than halos, and which always works. The result is the same.
enum class Edges { kAuto, kApart, kPadded };

// One value for all dimensions, or one for each.
struct ConvolutionOptions {
  std::vector<std::int64_t> stride{1};
  std::vector<std::int64_t> padding{0};
  std::vector<std::int64_t> padding_behind{};  // where it differs from the one before; empty: the same
  std::vector<std::int64_t> dilation{1};
  std::int64_t groups = 1;
  partition::Border border = partition::Border::kZeros;
  Edges edges = Edges::kAuto;
};

struct TransposedConvolutionOptions {
  std::vector<std::int64_t> stride{1};
  std::vector<std::int64_t> padding{0};
  std::vector<std::int64_t> output_padding{0};
  std::vector<std::int64_t> dilation{1};
  std::int64_t groups = 1;
};

// Weights are the same on all ranks; their gradients are summed over them. Collective.
[[nodiscard]] DistTensor convolution(const DistTensor& x, const at::Tensor& weight,
                                     const std::optional<at::Tensor>& bias, const ConvolutionOptions& options = {});

[[nodiscard]] DistTensor transposed_convolution(const DistTensor& x, const at::Tensor& weight,
                                                const std::optional<at::Tensor>& bias,
                                                const TransposedConvolutionOptions& options = {});

// The windows of a convolution in so many dimensions.
[[nodiscard]] std::vector<partition::Window> windows_of(std::size_t dims, const at::Tensor& weight,
                                                        const ConvolutionOptions& options);

// As convolution, with weights that are local tensors of this rank: nothing is summed.
[[nodiscard]] DistTensor convolution_with_own_weights(const DistTensor& x, const at::Tensor& weight,
                                                      const std::optional<at::Tensor>& bias,
                                                      const ConvolutionOptions& options);

}  // namespace weft::spatial
