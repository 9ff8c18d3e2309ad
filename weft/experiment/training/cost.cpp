#include "weft/experiment/training/cost.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/binary_cross_entropy.h>
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

// torch's binary cross entropy throws for NaN outputs. A diverged run continues, and its curve shows NaN.
CostValue not_a_number(const Tensor& outputs) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {outputs.sum().mul(kNone), kNone};
}

CostValue binary_cross_entropy(const Tensor& outputs, const Tensor& targets, std::int64_t whole_size) {
  const auto images = static_cast<double>(whole_size);
  if (outputs.isnan().any().item<bool>()) return not_a_number(outputs);
  const Tensor objective = at::binary_cross_entropy(outputs, targets, {}, at::Reduction::Sum).div(images);
  const at::NoGradGuard no_grad;
  const double near = smallest_distance(outputs);
  const Tensor clipped = outputs.detach().clamp(near, 1 - near);
  const double sum = at::binary_cross_entropy(clipped, targets, {}, at::Reduction::Sum).item<double>();
  return {objective, sum / (images * static_cast<double>(outputs.size(1)))};
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
  const Tensor difference = outputs.sub(targets);
  const Tensor objective = difference.mul(difference).sum().div(2 * images);
  return {objective, objective.item<double>()};
}

std::int64_t mistakes(const Tensor& outputs, const Tensor& labels) {
  if (labels.numel() == 0) return 0;
  return outputs.argmax(1).ne(labels).sum().item<std::int64_t>();
}

}  // namespace weft::experiment
