#include "weft/experiment/training/cost.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/one_hot.h>

#include <limits>

#include "weft/experiment/file/description.h"

namespace weft::experiment {
namespace {

using at::Tensor;

// The smallest distance from 0 and 1 whose logarithm is finite and accurate in the type of the outputs.
double smallest_distance(const Tensor& outputs) {
  return outputs.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                              : std::numeric_limits<float>::epsilon();
}

// The derivative is neon's: (y - t) / clip(y (1 - y)). The logistic function multiplies it by y (1 - y), so it vanishes
// if y is saturated.
CostValue binary_cross_entropy(const Tensor& outputs, const Tensor& targets, std::int64_t whole_size) {
  const auto images = static_cast<double>(whole_size);
  const double near = smallest_distance(outputs);
  const Tensor y = outputs.detach();
  const auto clipped = [&](const Tensor& x) { return x.clamp(near, 1 - near); };
  const Tensor others = targets.neg().add(1);
  const Tensor sum = targets.mul(clipped(y).log()).add(others.mul(clipped(y.neg().add(1)).log())).sum().neg();
  const Tensor slope = y.sub(targets).div(clipped(y.mul(y.neg().add(1))));
  const Tensor line = outputs.mul(slope).sum();  // has this slope
  return {line.sub(line.detach()).add(sum).div(images),
          sum.item<double>() / (images * static_cast<double>(outputs.size(1)))};
}

CostValue logistic_cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t whole_size) {
  const Tensor objective = at::binary_cross_entropy_with_logits(logits, targets, {}, {}, at::Reduction::Sum)
                               .div(static_cast<double>(whole_size));
  return {objective, objective.item<double>() / static_cast<double>(logits.size(1))};
}

}  // namespace

CostValue cost_of(Cost cost, const Tensor& outputs, const Tensor& labels, std::int64_t whole_size) {
  const auto images = static_cast<double>(whole_size);
  if (cost == Cost::kSoftmaxCrossEntropy) {
    const Tensor objective = at::cross_entropy_loss(outputs, labels, {}, at::Reduction::Sum).div(images);
    return {objective, objective.item<double>()};
  }
  const Tensor targets = at::one_hot(labels, outputs.size(1)).to(outputs.scalar_type());
  if (cost == Cost::kBinaryCrossEntropy) return binary_cross_entropy(outputs, targets, whole_size);
  if (cost == Cost::kLogisticCrossEntropy) return logistic_cross_entropy(outputs, targets, whole_size);
  const Tensor difference = outputs.sub(targets);
  const Tensor objective = difference.mul(difference).sum().div(2 * images);
  return {objective, objective.item<double>()};
}

std::int64_t mistakes(const Tensor& outputs, const Tensor& labels) {
  if (labels.numel() == 0) return 0;
  return outputs.argmax(1).ne(labels).sum().item<std::int64_t>();
}

}  // namespace weft::experiment
