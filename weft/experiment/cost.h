// What training makes smaller, and what is reported of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::experiment {

enum class Cost : std::uint8_t;  // description.h

struct CostValue {
  at::Tensor objective;  // backward starts here: the sum over outputs, divided by the whole batch
  double reported = 0;   // this rank's share of the number in curves; shares of all shards add up to it
};

// `outputs` [images of this shard, classes], `whole_size` images in the batch over all shards. Cross entropy's reported
// value is neon's: the mean over images and outputs, of outputs clipped away from 0 and 1.
[[nodiscard]] CostValue cost_of(Cost cost, const at::Tensor& outputs, const at::Tensor& labels,
                                std::int64_t whole_size);

// How many of the labels are not the largest output's class.
[[nodiscard]] std::int64_t mistakes(const at::Tensor& outputs, const at::Tensor& labels);

}  // namespace weft::experiment
