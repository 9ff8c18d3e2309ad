// Additional metrics of an evaluation: top-k error and area under the ROC curve.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "weft/experiment/file/description.h"
#include "weft/experiment/layers/mesh.h"

namespace weft::experiment {

using MetricValues = std::vector<std::pair<std::string, double>>;  // name and value, in file order

// Counts the labels that are not among the `k` largest outputs. Of equal outputs the first counts as larger, like in
// argmax. NaN is never among the largest.
[[nodiscard]] std::int64_t missed(const at::Tensor& outputs, const at::Tensor& labels, std::int64_t k);

// Accumulates batches of outputs [images, classes] of this rank's shard.
class Metrics {
 public:
  explicit Metrics(const std::vector<Metric>& wanted) : wanted_(wanted), missed_(wanted.size(), 0) {}

  void add(const at::Tensor& outputs, const at::Tensor& labels);
  // Computes the metrics over the images of all shards, equal on every rank. Collective over `shards`.
  [[nodiscard]] MetricValues values(const CommunicatorPtr& shards) const;

 private:
  [[nodiscard]] bool wants_area() const;

  std::vector<Metric> wanted_;
  std::vector<std::int64_t> missed_;  // per metric
  std::int64_t images_ = 0;
  std::int64_t classes_ = 0;
  std::vector<at::Tensor> outputs_;  // only for the area, which needs all outputs at once
  std::vector<at::Tensor> labels_;
};

}  // namespace weft::experiment
