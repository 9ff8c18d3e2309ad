// Tests best units against counting, and optimal stimuli against the weights of linear units.
#include "weft/experiment/training/stimuli.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/experiment/run/runs.h"

namespace weft::experiment {
namespace {

using at::Tensor;

// Counts pairs.
double counted_area(const Tensor& values, const Tensor& wanted) {
  double won = 0;
  double pairs = 0;
  const Tensor wide = values.to(at::kDouble).contiguous();
  const auto* value = wide.const_data_ptr<double>();
  const auto* is_wanted = wanted.const_data_ptr<bool>();
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    for (std::int64_t j = 0; j < wide.numel(); ++j) {
      if (!is_wanted[i] || is_wanted[j]) continue;
      won += value[i] > value[j] ? 1 : value[i] == value[j] ? 0.5 : 0;
      ++pairs;
    }
  }
  return won / pairs;
}

TEST(AreaUnderCurveTest, MatchesCountedPairs) {
  at::manual_seed(2);
  for (const bool ties : {false, true}) {
    const Tensor values = ties ? at::randint(0, 5, {7, 60}, at::kDouble) : at::randn({7, 60}, at::kDouble);
    const Tensor wanted = at::rand({60}).lt(0.3).contiguous();
    const Tensor areas = area_under_curve(values, wanted);
    for (std::int64_t i = 0; i < 7; ++i)
      EXPECT_NEAR(areas[i].item<double>(), counted_area(values[i], wanted), 1e-12) << "row " << i;
  }
}

TEST(AreaUnderCurveTest, IsOneZeroOrHalfInSimpleCases) {
  const Tensor wanted = at::arange(10).ge(5);
  const Tensor values =
      at::stack({at::arange(10).to(at::kDouble), -at::arange(10).to(at::kDouble), at::ones({10}, at::kDouble)});
  const Tensor areas = area_under_curve(values, wanted);
  EXPECT_EQ(areas[0].item<double>(), 1);
  EXPECT_EQ(areas[1].item<double>(), 0);
  EXPECT_EQ(areas[2].item<double>(), 0.5);
}

constexpr const char* kUnits = R"(
model:
  batch_size: 7
  layers:
    - conv: {maps: 3, kernel: [3, 4], bias: false}
    - linear: 3
)";

// Returns the values of all units for all images, [units, images], and the labels.
std::pair<Tensor, Tensor> all_units(Trial& run, data::Loader& images) {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> values;
  std::vector<Tensor> labels;
  images.start(0);
  while (const auto batch = images.next()) {
    const Activations units = run.network.run(run.network.input(batch->images), 0, run.network.size() - 1, {});
    values.push_back(std::get<spatial::DistTensor>(units).local.flatten(1));
    labels.push_back(batch->labels);
  }
  return {at::cat(values).t(), at::cat(labels)};
}

TEST(SpotCheckTest, FindsTheBestUnit) {
  for (const char* split : {"split: tiles", "split: batch"}) {
    Trial unsplit(toy(std::string(split) + kUnits), alone());
    Trial run(toy(std::string(split) + kUnits), world());
    const auto found = spot_check(run.experiment, run.mesh, run.network, *run.dataset.train);
    const auto on_test = areas_of(run.mesh, run.network, found, *run.dataset.test);
    const auto [values, labels] = all_units(unsplit, *unsplit.dataset.train);
    const auto [test_values, test_labels] = all_units(unsplit, *unsplit.dataset.test);
    ASSERT_EQ(found.size(), 3U);
    for (std::int64_t label = 0; label < 3; ++label) {
      const BestUnit& unit = found[static_cast<std::size_t>(label)];
      EXPECT_EQ(unit.label, label);
      const Tensor wanted = labels.eq(label).contiguous();
      EXPECT_NEAR(unit.auc, counted_area(values[unit.number], wanted), 1e-9);
      double best = 0;
      for (std::int64_t i = 0; i < values.size(0); ++i) best = std::max(best, counted_area(values[i], wanted));
      EXPECT_NEAR(unit.auc, best, 1e-9);
      EXPECT_NEAR(on_test[static_cast<std::size_t>(label)],
                  counted_area(test_values[unit.number], test_labels.eq(label).contiguous()), 1e-9);
    }
  }
}

// Four images have at most four of eight classes. The other classes have no area, rather than an area of 0.
TEST(SpotCheckTest, OmitsClassesWithoutImages) {
  Trial run(parse_experiment("seed: 3\ndata: {set: blobs, images: 4, test_images: 3, shape: [11, 9], classes: 8}\n"
                             "model:\n  batch_size: 4\n  layers:\n    - conv: {maps: 2, kernel: 3}\n    - linear: 8\n",
                             "few.yaml"),
            world());
  const Tensor labels = run.dataset.train->part().kept.labels;
  const Tensor test_labels = run.dataset.test->part().kept.labels;
  const auto found = spot_check(run.experiment, run.mesh, run.network, *run.dataset.train);
  const auto on_test = areas_of(run.mesh, run.network, found, *run.dataset.test);
  std::int64_t looked_at = 0;
  for (std::int64_t label = 0; label < 8; ++label) looked_at += labels.eq(label).any().item<bool>() ? 1 : 0;
  ASSERT_GT(looked_at, 1);
  ASSERT_EQ(found.size(), static_cast<std::size_t>(looked_at));
  std::int64_t without = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(labels.eq(found[i].label).any().item<bool>()) << found[i].label;
    EXPECT_GT(found[i].auc, 0);
    const bool tested = test_labels.eq(found[i].label).any().item<bool>();
    EXPECT_EQ(std::isnan(on_test[i]), !tested) << found[i].label;
    without += tested ? 0 : 1;
  }
  EXPECT_GT(without, 0);
}

// The optimal stimulus of a linear unit is its normalized filter.
TEST(OptimalStimulusTest, OfALinearUnitIsItsFilter) {
  Trial run(toy(kUnits), world());
  const Tensor weights = run.network.parameters(0)[0]->value.detach();  // [3, 2, 3, 4]
  const std::int64_t columns = 9 - 4 + 1;
  const std::int64_t rows = 11 - 3 + 1;
  const std::vector<std::array<std::int64_t, 3>> places{{0, 0, 0}, {2, rows - 1, columns - 1}, {1, 4, 2}};
  std::vector<std::int64_t> units;
  for (const auto& [map, row, column] : places) units.push_back((map * rows + row) * columns + column);
  const Tensor all = optimal_stimuli(run.experiment, run.mesh, run.network, units);
  if (run.mesh.tiles()->rank() != 0) return;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto [map, row, column] = places[i];
    const Tensor found = all[static_cast<std::int64_t>(i)];
    Tensor expected = at::zeros({2, 11, 9}, at::kDouble);
    expected.narrow(1, row, 3).narrow(2, column, 4).copy_(weights[map]);
    expected.div_(expected.norm());
    EXPECT_NEAR(found.norm().item<double>(), 1, 1e-12);
    EXPECT_LT((found - expected).abs().max().item<double>(), 1e-3);
  }
}

// No test image of the same norm excites the unit as much.
TEST(OptimalStimulusTest, ExcitesMoreThanImages) {
  const char* model = R"(
model:
  batch_size: 10
  layers:
    - local_filter: {maps: 3, kernel: 3, pretraining: false}
    - l2_pool: 2
    - contrast_norm: 3
    - linear: 3
)";
  constexpr std::int64_t kUnit = 77;
  Trial split(toy(model), world());
  Trial run(toy(model), alone());
  const Tensor in_tiles = optimal_stimuli(split.experiment, split.mesh, split.network, {kUnit, 5});
  const Tensor found = optimal_stimuli(run.experiment, run.mesh, run.network, {kUnit});  // alone, with the same result
  if (world()->rank() == 0) {
    EXPECT_LT((in_tiles[0] - found[0]).abs().max().item<double>(), 1e-9);
  }
  run.dataset.test->start(0);
  const Tensor images = run.dataset.test->next()->images;
  const Tensor lengths = images.flatten(1).norm(2, {1}).view({-1, 1, 1, 1});
  const at::NoGradGuard no_grad;
  const auto response = [&](const Tensor& x) {
    const Activations units = run.network.run(run.network.input(x), 0, run.network.size() - 1, {});
    return std::get<spatial::DistTensor>(units).local.flatten(1).select(1, kUnit);
  };
  EXPECT_GT(response(found).item<double>(), response(images / lengths).max().item<double>());
}

}  // namespace
}  // namespace weft::experiment
