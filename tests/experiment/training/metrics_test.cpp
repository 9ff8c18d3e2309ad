// Tests metrics against manual counting, for every split.
#include "weft/experiment/training/metrics.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/experiment/run/runs.h"

namespace weft::experiment {
namespace {

using at::Tensor;

TEST(MetricsTest, MissedMatchesASortedList) {
  at::manual_seed(1);
  const Tensor outputs = at::randint(0, 4, {200, 6}, at::kDouble);  // with many ties
  const Tensor labels = at::randint(0, 6, {200}, at::kLong);
  const Tensor order = std::get<1>(outputs.sort(/*stable=*/true, 1, /*descending=*/true));
  for (std::int64_t k = 1; k < 6; ++k) {
    const Tensor among = order.narrow(1, 0, k).eq(labels.unsqueeze(1)).any(1);
    EXPECT_EQ(missed(outputs, labels, k), 200 - among.sum().item<std::int64_t>()) << k;
  }
  EXPECT_EQ(missed(outputs, labels, 1), outputs.argmax(1).ne(labels).sum().item<std::int64_t>());
  EXPECT_EQ(missed(at::zeros({0, 6}), at::zeros({0}, at::kLong), 1), 0);
}

TEST(MetricsTest, NaNIsAlwaysMissed) {
  const Tensor outputs = at::full({2, 3}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  EXPECT_EQ(missed(outputs, at::arange(2), 2), 2);
}

constexpr const char* kMeasured = R"(
model:
  epochs: 1
  batch_size: 7
  metrics: [top2, auc, error]
  layers:
    - conv: {maps: 3, kernel: 3, activation: tanh}
    - linear: 3
)";

// Counts pairs over all test images.
MetricValues counted(Trial& run) {
  run.dataset.test->start(0);
  std::vector<Tensor> outputs;
  std::vector<Tensor> labels;
  while (const auto batch = run.dataset.test->next()) {
    outputs.push_back(run.network.forward(batch->images, {}).detach());
    labels.push_back(batch->labels);
  }
  const Tensor y = at::cat(outputs);
  const Tensor t = at::cat(labels);
  double area = 0;
  for (std::int64_t label = 0; label < 3; ++label) {
    double won = 0;
    double pairs = 0;
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      for (std::int64_t j = 0; j < t.numel(); ++j) {
        if (t[i].item<std::int64_t>() != label || t[j].item<std::int64_t>() == label) continue;
        const double difference = (y[i][label] - y[j][label]).item<double>();
        won += difference > 0 ? 1 : difference == 0 ? 0.5 : 0;
        ++pairs;
      }
    }
    area += won / pairs / 3;
  }
  const Tensor best = std::get<1>(y.topk(2, 1));
  const double right = best.eq(t.unsqueeze(1)).any(1).sum().item<double>();
  return {{"top2_error", 1 - right / static_cast<double>(t.numel())}, {"auc", area}};
}

TEST(MetricsTest, DoNotDependOnTheSplit) {
  for (const char* split : {"split: tiles", "split: batch"}) {
    Trial unsplit(toy(std::string(split) + kMeasured), alone());
    Trial run(toy(std::string(split) + kMeasured), world());
    static_cast<void>(unsplit.finish());
    static_cast<void>(run.finish());
    const MetricValues expected = counted(unsplit);
    const Evaluation found = evaluate(run.experiment, run.mesh, run.network, *run.dataset.test);
    ASSERT_EQ(found.metrics.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found.metrics[i].first, expected[i].first);
      EXPECT_NEAR(found.metrics[i].second, expected[i].second, 1e-12);
    }
    EXPECT_LE(found.metrics[0].second, found.error);
  }
}

TEST(MetricsTest, EmptyByDefault) {
  std::string model = kMeasured;
  model.erase(model.find("  metrics"), std::string("  metrics: [top2, auc, error]\n").size());
  Trial run(toy(model), world());
  EXPECT_TRUE(evaluate(run.experiment, run.mesh, run.network, *run.dataset.test).metrics.empty());
}

}  // namespace
}  // namespace weft::experiment
