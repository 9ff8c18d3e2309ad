#include "weft/experiment/training/evaluation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/zeros.h>

#include "weft/collective/all_reduce.h"
#include "weft/experiment/file/description.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/training/cost.h"
#include "weft/trace/span.h"

namespace weft::experiment {
namespace {

using at::Tensor;

std::vector<std::vector<std::int64_t>> table_of(const Tensor& counts, std::int64_t classes) {
  std::vector<std::vector<std::int64_t>> table;
  const auto* count = counts.const_data_ptr<double>();
  for (std::int64_t i = 0; i < classes; ++i) {
    table.emplace_back(count + i * classes, count + (i + 1) * classes);
  }
  return table;
}

}  // namespace

Evaluation evaluate(const Experiment& experiment, const Mesh& mesh, const Network& network, data::Loader& images) {
  const at::NoGradGuard no_grad;
  const trace::Span span("experiment/evaluate");
  const std::int64_t classes = class_count(experiment.dataset);
  // The confusion matrix, followed by the cost and the number of images.
  Tensor sums = at::zeros({classes * classes + 2}, at::kDouble);
  Metrics metrics(experiment.model.metrics);
  images.start(0);
  while (const auto batch = images.next()) {
    const Tensor outputs = network.forward(batch->images, {});
    const std::int64_t count = batch->labels.numel();
    metrics.add(outputs, batch->labels);
    if (count == 0) continue;
    const Tensor cells = batch->labels.mul(classes).add(outputs.argmax(1));
    sums.narrow(0, 0, classes * classes).add_(at::bincount(cells, {}, classes * classes));
    const double cost = cost_of(experiment.model.cost, outputs, batch->labels, count).reported;
    sums[classes * classes].add_(cost * static_cast<double>(count));
    sums[classes * classes + 1].add_(static_cast<double>(count));
  }
  if (mesh.shards()->size() > 1) sums = collective::all_reduce(sums, mesh.shards());
  Evaluation result;
  result.metrics = metrics.values(mesh.shards());
  result.images = static_cast<std::int64_t>(sums[classes * classes + 1].item<double>());
  result.confusion = table_of(sums, classes);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < classes; ++i) {
    right += result.confusion[static_cast<std::size_t>(i)][static_cast<std::size_t>(i)];
  }
  if (result.images == 0) return result;
  result.cost = sums[classes * classes].item<double>() / static_cast<double>(result.images);
  result.error = static_cast<double>(result.images - right) / static_cast<double>(result.images);
  return result;
}

}  // namespace weft::experiment
