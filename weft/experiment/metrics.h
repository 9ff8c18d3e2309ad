// What is measured of a network's answers besides cost and error.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "weft/experiment/description.h"
#include "weft/experiment/mesh.h"

namespace weft::experiment {

using MetricValues = std::vector<std::pair<std::string, double>>;  // by name, in the order of the experiment's

// How many of the labels are not among the `k` largest outputs. Of equal outputs the first counts as larger, as argmax
// has it; one that is no number is never among them.
[[nodiscard]] std::int64_t missed(const at::Tensor& outputs, const at::Tensor& labels, std::int64_t k);

// Collects batches of outputs [images, classes] of this rank's shard.
class Metrics {
 public:
  explicit Metrics(const std::vector<Metric>& wanted) : wanted_(wanted), missed_(wanted.size(), 0) {}

  void add(const at::Tensor& outputs, const at::Tensor& labels);
  // Over the images of all shards, the same on every rank. Collective over them.
  [[nodiscard]] MetricValues values(const Comm& shards) const;

 private:
  [[nodiscard]] bool wants_area() const;

  std::vector<Metric> wanted_;
  std::vector<std::int64_t> missed_;  // by metric
  std::int64_t images_ = 0;
  std::int64_t classes_ = 0;
  std::vector<at::Tensor> outputs_;  // kept for areas only, which need all of them at once
  std::vector<at::Tensor> labels_;
};

}  // namespace weft::experiment
