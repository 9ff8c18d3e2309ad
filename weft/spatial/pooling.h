// Pooling of tiles by windows: maximum, average and p-norm.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::spatial {

// One value for all dimensions, or one for each. No stride means the kernel's size.
struct PoolingOptions {
  std::vector<std::int64_t> kernel{2};
  std::vector<std::int64_t> stride{};
  std::vector<std::int64_t> padding{0};
  std::vector<std::int64_t> dilation{1};  // of maxima only
  bool ceil_mode = false;
  bool count_include_pad = true;                       // of averages only
  std::optional<std::int64_t> divisor = std::nullopt;  // of averages only
};

// The windows of pooling in so many dimensions.
[[nodiscard]] std::vector<partition::Window> windows_of(std::size_t dims, const PoolingOptions& options);
// The largest of each window in a tensor that has what they need; `padding` by dimension. Not collective.
[[nodiscard]] at::Tensor largest(const at::Tensor& x, const std::vector<partition::Window>& windows,
                                 const std::vector<std::int64_t>& padding);

// All collective, with the results that torch's pooling of the whole field has.
[[nodiscard]] DistTensor max_pool(const DistTensor& x, const PoolingOptions& options);
[[nodiscard]] DistTensor average_pool(const DistTensor& x, const PoolingOptions& options);
// The p-th root of the sum of p-th powers. Its gradient at 0 is 0, where torch's is not a number.
[[nodiscard]] DistTensor norm_pool(const DistTensor& x, double p, const PoolingOptions& options);

}  // namespace weft::spatial
