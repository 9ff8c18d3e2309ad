// Images with a label each, as the readers give them and training takes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::data {

struct LabelledImages {
  at::Tensor images;  // uint8, [count, channels, height, width]
  at::Tensor labels;  // int64, [count]

  [[nodiscard]] std::int64_t size() const { return labels.size(0); }
  // Those with the given numbers (int64), in that order; a copy.
  [[nodiscard]] LabelledImages select(const at::Tensor& numbers) const;
};

// Pixels from 0 to 1.
[[nodiscard]] at::Tensor unit_floats(const at::Tensor& images);

// A view of the slice that part `index` of `parts` owns, as partition::balanced cuts: a rank's share of a batch or a
// set.
[[nodiscard]] at::Tensor shard(const at::Tensor& whole, std::int64_t parts, std::int64_t index, std::int64_t dim = 0);
[[nodiscard]] LabelledImages shard(const LabelledImages& whole, std::int64_t parts, std::int64_t index);

}  // namespace weft::data
