// Cost functions: the objective that training minimizes, and the value in curves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::experiment {

enum class Cost : std::uint8_t;  // defined in description.h

struct CostValue {
  at::Tensor objective;  // for backward: the sum over outputs, divided by the size of the whole batch
  double reported = 0;   // this shard's contribution to the value in curves; the shards add up to it
};

// Computes the cost of `outputs` [images of this shard, classes]. `whole_size` is the number of images in the batch of
// all shards; for kLogisticCrossEntropy, `outputs` are logits. Binary cross entropy reports the mean over images and
// outputs, as neon does.
[[nodiscard]] CostValue cost_of(Cost cost, const at::Tensor& outputs, const at::Tensor& labels,
                                std::int64_t whole_size);

// Counts the images whose label is not the class of the largest output.
[[nodiscard]] std::int64_t mistakes(const at::Tensor& outputs, const at::Tensor& labels);

}  // namespace weft::experiment
