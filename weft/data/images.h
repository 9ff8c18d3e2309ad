// Labelled images as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::data {

struct LabelledImages {
  at::Tensor images;  // uint8, [count, channels, height, width]
  at::Tensor labels;  // int64, [count]

  [[nodiscard]] std::int64_t size() const { return labels.size(0); }
  // Copies the images with the given indices (int64), in that order.
  [[nodiscard]] LabelledImages select(const at::Tensor& numbers) const;
};

// Converts pixels from bytes to floats between 0 and 1.
[[nodiscard]] at::Tensor unit_floats(const at::Tensor& images);

// Returns a view of the slice that part `index` of `parts` owns, as defined by partition::balanced(). Throws
// std::invalid_argument if `index` is out of range.
[[nodiscard]] at::Tensor shard(const at::Tensor& whole, std::int64_t parts, std::int64_t index, std::int64_t dim = 0);
[[nodiscard]] LabelledImages shard(const LabelledImages& whole, std::int64_t parts, std::int64_t index);

}  // namespace weft::data
