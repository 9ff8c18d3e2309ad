// Pooling of tiles by windows: maximum, average and p-norm.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// Lists have one value for all dimensions, or one for each. Without a stride, the kernel's size is the stride.
struct PoolingOptions {
  Sizes kernel{2};
  Sizes stride{};
  Sizes padding{0};
  Sizes dilation{1};  // max_pool only
  bool ceil_mode = false;
  bool count_include_pad = true;                       // average_pool only
  std::optional<std::int64_t> divisor = std::nullopt;  // average_pool only
};

// Returns the windows of pooling in `dims` dimensions.
[[nodiscard]] std::vector<partition::Window> windows_of(std::size_t dims, const PoolingOptions& options);
// Returns the maximum of each window of a local tensor. `padding` is by dimension. Not collective.
[[nodiscard]] at::Tensor largest(const at::Tensor& x, const std::vector<partition::Window>& windows,
                                 const Sizes& padding);

// Return the same values as torch's pooling of the whole field. Collective.
[[nodiscard]] DistTensor max_pool(const DistTensor& x, const PoolingOptions& options);
[[nodiscard]] DistTensor average_pool(const DistTensor& x, const PoolingOptions& options);
// Returns the p-th root of the sum of p-th powers. Its gradient at 0 is 0; torch's is NaN.
[[nodiscard]] DistTensor norm_pool(const DistTensor& x, double p, const PoolingOptions& options);

}  // namespace weft::spatial
