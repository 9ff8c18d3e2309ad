// Convolution of tiles: each rank computes its tile of the result from its tile and the halo around it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/partition/border.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// One value for all dimensions, or one for each.
struct ConvolutionOptions {
  std::vector<std::int64_t> stride{1};
  std::vector<std::int64_t> padding{0};
  std::vector<std::int64_t> padding_behind{};  // where it differs from the one before; empty: the same
  std::vector<std::int64_t> dilation{1};
  std::int64_t groups = 1;
  partition::Border border = partition::Border::kZeros;
  // Compute what needs no halo while the halo travels. The result is put together from parts, which costs a copy of it:
  // worth it only where messages are slow.
  bool split_interior = false;
};

struct TransposedConvolutionOptions {
  std::vector<std::int64_t> stride{1};
  std::vector<std::int64_t> padding{0};
  std::vector<std::int64_t> output_padding{0};
  std::vector<std::int64_t> dilation{1};
  std::int64_t groups = 1;
};

// Weights are the same on all ranks; their gradients are summed over them. In backward the halo's gradient leaves
// before the weights' is computed. Collective.
[[nodiscard]] DistTensor convolution(const DistTensor& x, const at::Tensor& weight,
                                     const std::optional<at::Tensor>& bias, const ConvolutionOptions& options = {});

[[nodiscard]] DistTensor transposed_convolution(const DistTensor& x, const at::Tensor& weight,
                                                const std::optional<at::Tensor>& bias,
                                                const TransposedConvolutionOptions& options = {});

// As convolution, with weights that are local tensors of this rank: nothing is summed.
[[nodiscard]] DistTensor convolution_with_own_weights(const DistTensor& x, const at::Tensor& weight,
                                                      const std::optional<at::Tensor>& bias,
                                                      const ConvolutionOptions& options);

}  // namespace weft::spatial
