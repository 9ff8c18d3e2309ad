// Tests steps of pre-training against manually derived gradients, as in neon's GB.
#include "weft/experiment/training/pretraining.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/experiment/run/runs.h"

namespace weft::experiment {
namespace {

using at::Tensor;

constexpr const char* kModel = R"(
model:
  epochs: 1
  batch_size: 8
  cost: cross_entropy
  pretrain: {epochs: 1}
  layers:
    - local_filter: {name: filter, maps: 3, kernel: 4, sparsity: 0.3, pretrain_rate: 0.05, tied_weights: TIED}
    - l2_pool: 2
    - contrast_norm: 3
    - linear: {outputs: 3, activation: logistic, bias: false}
)";

// Images are [n, 2, 12, 11] and windows 4 x 4. Outputs are [n, 3, 9, 8], with 32 weights for each of the 3 * 72 units.
constexpr std::int64_t kMaps = 3, kRows = 9, kColumns = 8, kPlaces = 72, kTaps = 32;
constexpr double kSparsity = 0.3, kRate = 0.05;

Tensor patches(const Tensor& x) { return at::im2col(x, {4, 4}, {1, 1}, {0, 0}, {1, 1}); }  // [n, taps, places]

Tensor of_length_one(const Tensor& rows) { return rows / rows.norm(2, {-1}, /*keepdim=*/true); }

struct Step {
  double cost = 0;
  Tensor encoder;  // [maps, places, taps]
  Tensor decoder;
};

// The derivative of the sparsity cost by y: y divided by the norm of its window, summed over its windows.
Tensor pull_of_pooling(const Tensor& y, double& sum) {
  const Tensor field = y.view({-1, kMaps, kRows, kColumns});
  const Tensor pooled = at::avg_pool2d(field * field, {2, 2}, {1, 1}).mul(4).sqrt();
  sum = pooled.sum().item<double>();
  const Tensor spread =
      at::conv_transpose2d(1 / pooled, at::ones({kMaps, 1, 2, 2}, at::kDouble), {}, {1, 1}, {0, 0}, {0, 0}, kMaps);
  return (field * spread).flatten(2);
}

Step by_hand(const Tensor& images, const Tensor& encoder, const Tensor& decoder, bool tied) {
  const auto count = static_cast<double>(images.size(0));
  const Tensor in = patches(images);
  const Tensor y = at::einsum("mpt,ntp->nmp", {encoder, in});
  const Tensor back = at::col2im(at::einsum("mpt,nmp->ntp", {decoder, y}), {12, 11}, {4, 4}, {1, 1}, {0, 0}, {1, 1});
  const Tensor difference = back - images;
  double pooled = 0;
  const Tensor sparse = pull_of_pooling(y, pooled);
  const Tensor pull = patches(difference);
  const Tensor to_decoder = at::einsum("ntp,nmp->mpt", {pull, y}) / count;
  const Tensor error = at::einsum("mpt,ntp->nmp", {decoder, pull}) + kSparsity * sparse;
  const Tensor to_encoder = at::einsum("nmp,ntp->mpt", {error, in}) / count;
  Step step;
  step.cost = (0.5 * (difference * difference).sum().item<double>() + kSparsity * pooled) / count;
  step.decoder = of_length_one(decoder - kRate * to_decoder);
  // With tied weights, the encoder starts from the updated decoder.
  step.encoder = of_length_one((tied ? step.decoder : encoder) - kRate * to_encoder);
  return step;
}

// Returns this rank's part of the weights of the whole field.
Tensor part_of(const Tensor& rows, const Parameter& parameter) {
  return cut(rows.view({kMaps, kRows, kColumns, 2, 4, 4}), parameter.part);
}

void expect_step_by_hand(const std::string& split, bool tied) {
  std::string model = split + kModel;
  model.replace(model.find("TIED"), 4, tied ? "true" : "false");
  const Experiment experiment = toy(model, "[12, 11]");
  Trial unsplit(experiment, alone());
  const Tensor rows = unsplit.network.parameters(0)[0]->value.detach().clone().view({kMaps, kPlaces, kTaps});
  unsplit.dataset.train->start(0);
  const auto batch = unsplit.dataset.train->next();
  const Step expected = by_hand(batch->images, rows, rows, tied);
  Trial run(experiment, world());
  EXPECT_NEAR(run.training.step(false).cost, expected.cost, 1e-10);
  const Parameter& filter = *run.network.parameters(0)[0];
  EXPECT_TRUE(at::allclose(filter.value.detach(), part_of(expected.encoder, filter), 0, 1e-12));
  Pretrainer* const pretrainer = run.training.pretrainer(0);
  ASSERT_NE(pretrainer, nullptr);
  ASSERT_EQ(pretrainer->decoder() == nullptr, tied);
  if (tied) return;
  EXPECT_TRUE(at::allclose(pretrainer->decoder()->value.detach(), part_of(expected.decoder, filter), 0, 1e-12));
  // Encoder and decoder differ in the second step.
  const auto second = unsplit.dataset.train->next();
  const Step later = by_hand(second->images, expected.encoder, expected.decoder, tied);
  EXPECT_NEAR(run.training.step(false).cost, later.cost, 1e-10);
  EXPECT_TRUE(at::allclose(filter.value.detach(), part_of(later.encoder, filter), 0, 1e-12));
}

TEST(PretrainingTest, MatchesManualSteps) { expect_step_by_hand("split: tiles", false); }
TEST(PretrainingTest, MatchesManualStepsWithTiedWeights) { expect_step_by_hand("split: tiles", true); }
TEST(PretrainingTest, MatchesManualStepsWithSplitBatches) {
  expect_step_by_hand("split: batch", false);
  expect_step_by_hand("split: batch", true);
}

// The end of pre-training triggers the pictures of reconstructions.
TEST(PretrainingTest, ReportsItsEndOnce) {
  std::string model = kModel;
  model.replace(model.find("TIED"), 4, "false");
  model.replace(model.find("epochs: 1}"), 10, "epochs: 2}");
  Trial run(toy(model, "[12, 11]"), world());
  std::vector<std::int64_t> ends;
  while (!run.training.done()) {
    if (run.training.step(false).pretraining_ended) ends.push_back(run.training.progress().step);
  }
  EXPECT_EQ(ends, std::vector<std::int64_t>{2 * run.training.batches()});
}

}  // namespace
}  // namespace weft::experiment
