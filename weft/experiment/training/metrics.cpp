#include "weft/experiment/training/metrics.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "weft/collective/all_gather.h"
#include "weft/collective/all_reduce.h"
#include "weft/experiment/training/stimuli.h"

namespace weft::experiment {
namespace {

using at::Tensor;

// Returns the mean area under the ROC curve of each class against the others. Skips classes without both kinds of
// image.
double mean_area(const Tensor& outputs, const Tensor& labels) {
  double sum = 0;
  std::int64_t counted = 0;
  for (std::int64_t label = 0; label < outputs.size(1); ++label) {
    const Tensor wanted = labels.eq(label);
    if (!wanted.any().item<bool>() || wanted.all().item<bool>()) continue;
    sum += area_under_curve(outputs.select(1, label).unsqueeze(0).contiguous(), wanted).item<double>();
    ++counted;
  }
  return counted == 0 ? 0 : sum / static_cast<double>(counted);
}

Tensor of_all_shards(std::vector<Tensor> mine, const Tensor& nothing, const CommunicatorPtr& shards) {
  mine.push_back(nothing);  // a shard may have no images
  const Tensor all = at::cat(mine);
  return shards->size() == 1 ? all : collective::all_gather(all, shards, 0);
}

}  // namespace

std::int64_t missed(const Tensor& outputs, const Tensor& labels, std::int64_t k) {
  if (labels.numel() == 0) return 0;
  const Tensor own = outputs.gather(1, labels.unsqueeze(1));
  const Tensor before = at::arange(outputs.size(1), labels.options()).unsqueeze(0).lt(labels.unsqueeze(1));
  const Tensor not_above = at::where(before, outputs.lt(own), outputs.le(own));
  // `not_above` includes the label's own output.
  const Tensor above = not_above.sum(1).neg().add(outputs.size(1));
  return above.ge(k).sum().item<std::int64_t>();
}

bool Metrics::wants_area() const {
  return std::any_of(wanted_.begin(), wanted_.end(), [](const Metric& metric) { return metric.largest == 0; });
}

void Metrics::add(const Tensor& outputs, const Tensor& labels) {
  classes_ = outputs.size(1);
  images_ += labels.numel();
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    if (wanted_[i].largest > 0) missed_[i] += missed(outputs, labels, wanted_[i].largest);
  }
  if (!wants_area()) return;
  outputs_.push_back(outputs.detach().to(at::kDouble));
  labels_.push_back(labels);
}

MetricValues Metrics::values(const CommunicatorPtr& shards) const {
  const at::NoGradGuard no_grad;
  if (wanted_.empty()) return {};
  Tensor counts = at::zeros({static_cast<std::int64_t>(wanted_.size()) + 1}, at::kDouble);
  for (std::size_t i = 0; i < wanted_.size(); ++i)
    counts[static_cast<std::int64_t>(i)] = static_cast<double>(missed_[i]);
  counts[-1] = static_cast<double>(images_);
  if (shards->size() > 1) counts = collective::all_reduce(counts, shards);
  double area = 0;
  if (wants_area()) {
    const Tensor outputs = of_all_shards(outputs_, at::empty({0, classes_}, at::kDouble), shards);
    area = mean_area(outputs, of_all_shards(labels_, at::empty({0}, at::kLong), shards));
  }
  MetricValues values;
  const auto images = std::max(counts[-1].item<double>(), 1.0);
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const double part = counts[static_cast<std::int64_t>(i)].item<double>() / images;
    values.emplace_back(wanted_[i].name, wanted_[i].largest == 0 ? area : part);
  }
  return values;
}

}  // namespace weft::experiment
