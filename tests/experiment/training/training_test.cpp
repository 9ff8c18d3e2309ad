// Compares training on several ranks with one rank, and with plain torch.
#include "weft/experiment/training/training.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/experiment/run/runs.h"
#include "weft/experiment/file/problems.h"
#include "weft/experiment/layers/weights.h"

namespace weft::experiment {
namespace {

using at::Tensor;
using testing::HasSubstr;

constexpr const char* kConvnet = R"(
model:
  epochs: 2
  batch_size: 7
  cost: cross_entropy
  optimizer: {type: sgd, rate: 0.1, momentum: {type: linear_monotone, initial_coef: 0.2, start_epoch: 0,
              saturate_epoch: 1, saturated_coef: 0.7}}
  layers:
    - conv: {maps: 4, kernel: 3, bias: false}
    - max_pool: {kernel: 2, stride: 2}
    - linear: {outputs: 6, activation: relu, bias: false}
    - linear: {outputs: 3, activation: logistic, bias: false}
)";

constexpr const char* kMixed = R"(
model:
  epochs: 2
  batch_size: 8
  optimizer: {type: adamw, rate: 0.01, weight_decay: 0.1, schedule: {type: cosine}}
  layers:
    - conv: {maps: 4, kernel: 3, padding: 1, activation: tanh}
    - batch_norm
    - average_pool: 2
    - residual_stack: {depth: 3}
    - dropout: 0.4
    - linear: {outputs: 7, activation: relu}
    - batch_norm
    - dropout: 0.2
    - linear: {outputs: 5, activation: tanh}
    - linear: 3
)";

// The last batch of an epoch has 2 images, fewer than ranks.
constexpr const char* kNormalised = R"(
model:
  epochs: 2
  batch_size: 19
  optimizer: {type: sgd, rate: 0.05, momentum: 0.5}
  layers:
    - conv: {maps: 4, kernel: 3, activation: tanh}
    - batch_norm
    - average_pool: 2
    - linear: {outputs: 7, activation: tanh}
    - batch_norm
    - dropout: 0.3
    - linear: 3
)";

constexpr const char* kPooled = R"(
model:
  epochs: 1
  batch_size: 9
  cost: sum_squared
  optimizer: {type: adam, rate: 0.01}
  layers:
    - conv: {maps: 5, kernel: 3, stride: 2}
    - relu
    - global_average_pool
    - linear: 3
)";

constexpr const char* kFilters = R"(
model:
  epochs: 3
  batch_size: 8
  cost: cross_entropy
  optimizer: {type: sgd, rate: 0.05}
  pretrain: {epochs: 2, initial_epochs: 1}
  layers:
    - local_filter: {maps: 3, kernel: 4, sparsity: 0.1, pretrain_rate: 0.02}
    - l2_pool: 2
    - contrast_norm: 3
    - local_filter: {maps: 2, kernel: 3, sparsity: 0.05, tied_weights: true, pretrain_rate: 0.02}
    - l2_pool: 2
    - contrast_norm: 3
    - linear: {outputs: 3, activation: logistic, bias: false}
)";

void expect_same_curves(const Experiment& experiment, double tolerance = 1e-8) {
  Trial alone_run(experiment, alone());
  Trial split(experiment, world());
  const auto expected = alone_run.finish();
  const auto costs = split.finish();
  ASSERT_EQ(costs.size(), expected.size());
  ASSERT_FALSE(costs.empty());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    EXPECT_NEAR(costs[i], expected[i], tolerance * std::abs(expected[i])) << "step " << i;
  }
  const Evaluation mine = evaluate(split.experiment, split.mesh, split.network, *split.dataset.test);
  const Evaluation theirs = evaluate(alone_run.experiment, alone_run.mesh, alone_run.network, *alone_run.dataset.test);
  EXPECT_EQ(mine.images, 10);
  EXPECT_EQ(mine.confusion, theirs.confusion);
  EXPECT_NEAR(mine.cost, theirs.cost, tolerance * theirs.cost);
}

TEST(TrainingTest, ConvnetInTilesMatchesOneProcess) { expect_same_curves(toy(kConvnet)); }
TEST(TrainingTest, EveryLayerInTilesMatchesOneProcess) {
  expect_same_curves(toy(std::string("split: tiles") + kMixed));
}
TEST(TrainingTest, GlobalPoolingInTilesMatchesOneProcess) { expect_same_curves(toy(kPooled)); }
TEST(TrainingTest, FiltersInTilesMatchOneProcess) { expect_same_curves(toy(kFilters, "[12, 11]")); }
TEST(TrainingTest, ConvnetInBatchesMatchesOneProcess) {
  expect_same_curves(toy(std::string("split: batch") + kConvnet));
}
TEST(TrainingTest, FiltersInBatchesMatchOneProcess) {
  expect_same_curves(toy(std::string("split: batch") + kFilters, "[12, 11]"));
}

TEST(TrainingTest, BatchNormUsesTheWholeBatch) { expect_same_curves(toy(std::string("split: batch") + kNormalised)); }

// The last batch has a single image: 40 = 3 * 13 + 1.
TEST(TrainingTest, ASingleImageKeepsTheRunningVariance) {
  std::string model = kNormalised;
  model.replace(model.find("batch_size: 19"), 14, "batch_size: 13");
  expect_same_curves(toy(std::string("split: batch") + model));
  Trial run(toy(model), alone());
  for (const double cost : run.finish()) EXPECT_TRUE(std::isfinite(cost));
  for (const Parameter* parameter : run.network.parameters()) {
    EXPECT_TRUE(parameter->value.isfinite().all().item<bool>()) << parameter->name;
  }
}

TEST(TrainingTest, TilesAndBatchesMatchOneProcess) {
  if (world()->size() % 2 != 0) GTEST_SKIP() << "an even number of ranks is needed";
  expect_same_curves(toy(std::string("split: {batch_parts: 2}") + kConvnet));
  expect_same_curves(toy(std::string("split: {batch_parts: 2}") + kNormalised));
}

// Distributes layers over ranks. With one level, the solver is sequential.
TEST(TrainingTest, DistributedLayersMatchOneProcess) {
  const std::string model = R"(
split: none
model:
  epochs: 1
  batch_size: 8
  optimizer: {type: sgd, rate: 0.05, momentum: 0.5}
  layers:
    - conv: {maps: 3, kernel: 3, padding: 1, activation: relu}
    - residual_stack: {depth: 8, layer_parallel: {levels: LEVELS, coarsening: 2, iterations: 8}}
    - linear: 3
)";
  for (const char* levels : {"1", "2"}) {
    std::string text = model;
    text.replace(text.find("LEVELS"), 6, levels);
    expect_same_curves(toy(text), 1e-6);
  }
}

// neon's convnet in plain torch with manual updates.
TEST(TrainingTest, ConvnetMatchesPlainTorch) {
  Trial run(toy(kConvnet), world());
  const auto costs = run.finish();
  const Experiment& experiment = run.experiment;
  auto images = open_dataset(experiment, {}, 0, [](const std::string&) {});
  std::vector<Tensor> weights;
  std::vector<Tensor> velocities;
  const auto draw = [&](std::size_t layer, const Sizes& shape, std::int64_t fan_in) {
    auto generator = layer_generator(experiment.seed, layer);
    weights.push_back(initial_weights({}, shape, fan_in, at::kDouble, generator).set_requires_grad(true));
    velocities.push_back(at::zeros_like(weights.back()));
  };
  draw(0, {4, 2, 3, 3}, 18);
  draw(2, {6, 4 * 4 * 3}, 48);
  draw(3, {3, 6}, 6);
  std::size_t step = 0;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    images.train->start(epoch);
    while (const auto batch = images.train->next()) {
      const Tensor field = at::max_pool2d(at::conv2d(batch->images, weights[0]), {2, 2}, {2, 2});
      const Tensor hidden = at::relu(field.flatten(1).mm(weights[1].t()));
      const Tensor y = at::sigmoid(hidden.mm(weights[2].t()));
      const Tensor t = at::one_hot(batch->labels, 3).to(at::kDouble);
      const Tensor sum = -(t * y.log() + (1 - t) * (1 - y).log()).sum();
      const auto count = static_cast<double>(batch->labels.numel());
      ASSERT_LT(step, costs.size());
      EXPECT_NEAR(costs[step], sum.item<double>() / (3 * count), 1e-9) << "step " << step;
      ++step;
      const auto gradients = collective::grad(sum / count, weights);
      const at::NoGradGuard no_grad;
      const double momentum = epoch == 0 ? 0.2 : 0.7;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        velocities[i] = momentum * velocities[i] - 0.1 * gradients[i];
        weights[i].add_(velocities[i]);
      }
    }
  }
  EXPECT_EQ(step, costs.size());
}

// Single precision differs only by rounding. tests/python/experiment/curves_test.py covers longer runs.
TEST(TrainingTest, SinglePrecisionInTilesDiffersOnlyByRounding) {
  for (const char* model : {kConvnet, kMixed, kPooled}) {
    Experiment experiment = toy(std::string("split: tiles") + model);
    experiment.float64 = false;
    expect_same_curves(experiment, 1e-4);
  }
  Experiment filters = toy(kFilters, "[12, 11]");
  filters.float64 = false;
  expect_same_curves(filters, 1e-4);
}

ModelSpec filter_model(std::int64_t epochs, std::int64_t initial) {
  const Experiment experiment = toy(kFilters, "[12, 11]");
  ModelSpec model = experiment.model;
  model.epochs = epochs;
  model.pretraining.initial_epochs = initial;
  return model;
}

// In neon, initial epochs count as epochs: of 3 epochs with 1 initial one, the first trains only the last layer.
TEST(TrainingTest, InitialEpochsCountAsEpochs) {
  const auto stages = stages_of(filter_model(3, 1));
  ASSERT_EQ(stages.size(), 4U);  // after two filters
  EXPECT_EQ(stages[2].kind, Stage::Kind::kLastLayer);
  EXPECT_EQ(stages[2].epochs, 1);
  EXPECT_EQ(stages[3].kind, Stage::Kind::kWhole);
  EXPECT_EQ(stages[3].epochs, 2);
  EXPECT_EQ(stages[3].first_epoch, 1);
  EXPECT_EQ(stages_of(filter_model(3, 0)).size(), 3U);
  const auto only_last = stages_of(filter_model(2, 5));
  ASSERT_EQ(only_last.size(), 3U);
  EXPECT_EQ(only_last[2].kind, Stage::Kind::kLastLayer);
  EXPECT_EQ(only_last[2].epochs, 2);
}

TEST(TrainingTest, InitialEpochsChangeOnlyTheLastLayer) {
  Trial run(toy(kFilters, "[12, 11]"), world());
  const auto values = [&] {
    std::vector<Tensor> copies;
    for (const Parameter* parameter : run.network.parameters()) copies.push_back(parameter->value.detach().clone());
    return copies;
  };
  const auto train_to_stage = [&](std::int64_t stage) {
    while (!run.training.done() && run.training.progress().stage < stage) static_cast<void>(run.training.step(false));
  };
  train_to_stage(2);
  const auto before = values();
  train_to_stage(3);
  const auto after = values();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(at::equal(before[i], after[i]), i + 1 < before.size()) << "parameter " << i;
  }
  train_to_stage(4);
  const auto last = values();
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_FALSE(at::equal(after[i], last[i])) << "parameter " << i;
}

// Fractions below 1% are not percentages.
TEST(DatasetTest, SampleSizeIsTheGivenFraction) {
  for (const double sample : {1.0, 0.5, 0.01, 0.002}) {
    Experiment experiment = toy(kConvnet);
    experiment.dataset.images = 1000;
    experiment.dataset.sample = sample;
    experiment.model.batch_size = 2;
    const Dataset dataset = open_dataset(experiment, {}, 0, [](const std::string&) {});
    EXPECT_EQ(dataset.train->part().whole.count, static_cast<std::int64_t>(1000 * sample)) << sample;
  }
}

TEST(TrainingTest, FiltersKeepNormOne) {
  Trial run(toy(kFilters, "[12, 11]"), world());
  static_cast<void>(run.finish());
  for (const Parameter* parameter : run.network.parameters(0)) {
    const Tensor lengths = parameter->value.detach().flatten(3).norm(2, -1);
    EXPECT_TRUE(at::allclose(lengths, at::ones_like(lengths), 0, 1e-12));
  }
}

TEST(TrainingTest, PretrainingLearnsToReconstruct) {
  Trial run(toy(kFilters, "[12, 11]"), world());
  const auto costs = run.finish();
  const auto batches = static_cast<std::size_t>(run.training.batches());
  const auto mean = [&](std::size_t epoch) {
    double sum = 0;
    for (std::size_t i = 0; i < batches; ++i) sum += costs[epoch * batches + i];
    return sum / static_cast<double>(batches);
  };
  EXPECT_LT(mean(1), mean(0));  // the first filter's second epoch
  EXPECT_LT(mean(3), mean(2));  // the second's
}

TEST(TrainingTest, StopsIfAnyRankRequestsIt) {
  Trial run(toy(kConvnet), world());
  EXPECT_FALSE(run.training.step(false).stopped);
  EXPECT_TRUE(run.training.step(world()->rank() == world()->size() - 1).stopped);
  EXPECT_FALSE(run.training.step(false).stopped);
}

TEST(MeshTest, RejectsImpossibleRankCounts) {
  const auto error_of = [](const std::string& rest, std::int64_t ranks) {
    try {
      static_cast<void>(plan_ranks(toy(rest + kConvnet), ranks));
    } catch (const ExperimentError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of("split: none", 2), HasSubstr("needs 1 rank, got 2"));
  EXPECT_THAT(error_of("split: {grid: [2, 2]}", 3), HasSubstr("needs 4 ranks, got 3"));
  EXPECT_THAT(error_of("split: {strict_neon: true}", 9), HasSubstr("requires 1, 4 or 16 ranks"));
  EXPECT_THAT(error_of("split: {batch_parts: 2}", 3), HasSubstr("requires a multiple of 2 ranks"));
  EXPECT_THAT(error_of("split: batch", 8), HasSubstr("a batch of 7 images cannot be split into 8 parts"));
  EXPECT_THAT(error_of("split: {grid: [1, 10]}", 10), HasSubstr("at most 9 columns"));
  EXPECT_EQ(error_of("split: tiles", 6), "");
  EXPECT_THAT(error_of("split: tiles", 13), HasSubstr("the nearest possible number is 12"));
  EXPECT_THAT(error_of("split: {batch_parts: 2}", 26), HasSubstr("the nearest possible number is 24"));
  EXPECT_THAT(error_of("split: tiles", 1'000'000), HasSubstr("the nearest possible number is 99"));
  EXPECT_EQ(squarest_grid(6), (Sizes{3, 2}));
  EXPECT_EQ(squarest_grid(16), (Sizes{4, 4}));
  EXPECT_EQ(squarest_grid(7), (Sizes{7, 1}));
}

// Images with 16 rows allow 17 columns but not 17 rows.
TEST(MeshTest, TriesEveryGrid) {
  EXPECT_EQ(plan_ranks(toy(kConvnet, "[16, 40]"), 17).tiles, (Sizes{1, 17}));
  EXPECT_EQ(plan_ranks(toy(kConvnet, "[16, 40]"), 34).tiles, (Sizes{2, 17}));
  EXPECT_EQ(plan_ranks(toy(kConvnet, "[40, 16]"), 34).tiles, (Sizes{17, 2}));
  EXPECT_EQ(plan_ranks(toy(kConvnet, "[40, 40]"), 34).tiles, (Sizes{17, 2}));  // equally square: more rows
  EXPECT_EQ(plan_ranks(toy(kConvnet, "[16, 40]"), 64).tiles, (Sizes{8, 8}));
}

}  // namespace
}  // namespace weft::experiment
