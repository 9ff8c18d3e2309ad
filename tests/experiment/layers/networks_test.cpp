// Networks with every layer type of weft's own form: split, unsplit and in plain torch.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/experiment/run/runs.h"
#include "weft/collective/autograd/backward.h"
#include "weft/experiment/layers/network.h"

namespace weft::experiment {
namespace {

using at::Tensor;
using testing::ElementsAre;

// Fields of odd sizes that shrink, grow and shrink again, followed by vectors in parts.
constexpr const char* kFields = R"(
model:
  epochs: 1
  batch_size: 9
  optimizer: {type: sgd, rate: 0.05}
  layers:
    - conv: {name: wide, maps: 6, kernel: 3, padding: 2, dilation: 2, activation: gelu}
    - group_norm: {groups: 3, name: groups}
    - conv: {name: grouped, maps: 6, kernel: 3, stride: 2, padding: 1, groups: 2, activation: leaky_relu, slope: 0.2}
    - instance_norm: {affine: true, name: instances}
    - conv_transpose: {name: back, maps: 4, kernel: 3, stride: 2, padding: 1, output_padding: [1, 0], groups: 2}
    - elu: 0.7
    - upsample: {scale: 2, mode: bilinear}
    - average_pool: {kernel: 3, stride: 2, padding: 1, count_include_pad: false}
    - layer_norm: {name: images}
    - upsample: {size: [7, 10]}
    - silu
    - adaptive_average_pool: [3, 2]
    - flatten
    - softplus
    - linear: {name: first, outputs: 8, activation: sigmoid}
    - layer_norm: {name: vectors}
    - linear: {name: second, outputs: 5, activation: silu}
    - linear: {name: last, outputs: 3}
)";

constexpr const char* kResidual = R"(
model:
  epochs: 1
  batch_size: 9
  optimizer: {type: sgd, rate: 0.05}
  layers:
    - conv: {maps: 4, kernel: 3, padding: 1}
    - residual:
        - conv: {maps: 4, kernel: 3, padding: 1, bias: false}
        - batch_norm
        - relu
        - residual: [conv: {maps: 4, kernel: 1, activation: tanh}]
    - residual:
        name: down
        layers: [conv: {maps: 8, kernel: 3, stride: 2, padding: 1}, {group_norm: 2}, dropout: 0.2]
        shortcut: [conv: {name: match, maps: 8, kernel: 1, stride: 2}]
        activation: elu
        alpha: 0.5
    - adaptive_max_pool: 4
    - linear: {outputs: 6, activation: tanh}
    - residual: [linear: {outputs: 7, activation: gelu}, linear: 6]
    - linear: 3
)";

// One branch of the block returns a whole vector, the other one parts.
constexpr const char* kWholeAndParts = R"(
model:
  epochs: 1
  batch_size: 8
  optimizer: {type: adam, rate: 0.01}
  layers:
    - conv: {maps: 4, kernel: 3, activation: silu}
    - residual: {layers: [global_average_pool, linear: 5], shortcut: [linear: 5], activation: softplus}
    - linear: 3
)";

// No layer after the block needs vectors in parts.
constexpr const char* kEndsInBlock = R"(
model:
  epochs: 1
  batch_size: 8
  optimizer: {type: sgd, rate: 0.1, momentum: 0.5}
  layers:
    - max_pool: 2
    - linear: 3
    - residual: [linear: {outputs: 4, activation: tanh}, linear: 3]
)";

constexpr const char* kAll[] = {kFields, kResidual, kWholeAndParts, kEndsInBlock};

void expect_same_curves(const Experiment& experiment) {
  Trial unsplit(experiment, alone());
  Trial split(experiment, world());
  const auto expected = unsplit.finish();
  const auto costs = split.finish();
  ASSERT_EQ(costs.size(), expected.size());
  ASSERT_FALSE(costs.empty());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    EXPECT_NEAR(costs[i], expected[i], 1e-11 * std::abs(expected[i])) << "step " << i;
  }
  const Evaluation mine = evaluate(split.experiment, split.mesh, split.network, *split.dataset.test);
  const Evaluation theirs = evaluate(unsplit.experiment, unsplit.mesh, unsplit.network, *unsplit.dataset.test);
  EXPECT_EQ(mine.confusion, theirs.confusion);
  EXPECT_NEAR(mine.cost, theirs.cost, 1e-11 * theirs.cost);
}

TEST(NetworksTest, TilesTrainLikeOneProcess) {
  for (const char* model : kAll) expect_same_curves(toy(std::string("split: tiles") + model));
}

TEST(NetworksTest, OneRowOfTilesTrainsLikeOneProcess) {
  const std::string row = "split: {grid: [1, " + std::to_string(world()->size()) + "]}";
  for (const char* model : kAll) {
    Experiment experiment = toy(row + model);
    Trial split(experiment, world());
    experiment.split.grid.reset();
    Trial unsplit(experiment, alone());
    EXPECT_THAT(split.finish(), testing::Pointwise(testing::DoubleNear(1e-10), unsplit.finish()));
  }
}

TEST(NetworksTest, SplitBatchesTrainLikeOneProcess) {
  for (const char* model : kAll) expect_same_curves(toy(std::string("split: batch") + model));
}

TEST(NetworksTest, TilesAndSplitBatchesTrainLikeOneProcess) {
  if (world()->size() % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
  for (const char* model : kAll) expect_same_curves(toy(std::string("split: {batch_parts: 2}") + model));
}

using Weights = std::map<std::string, Tensor>;

// Trains with torch's own functions. `forward` gets the weights by their names in checkpoints.
template <class Forward>
void expect_same_in_torch(const Experiment& experiment, const Forward& forward) {
  Trial drawn(experiment, alone());
  Weights weights;
  std::vector<Tensor> trained;
  for (const Parameter* parameter : drawn.network.parameters()) {
    weights[parameter->name] = parameter->value.detach().clone().set_requires_grad(parameter->trained);
    if (parameter->trained) trained.push_back(weights[parameter->name]);
  }
  const auto costs = Trial(experiment, world()).finish();
  auto images = open_dataset(experiment, {}, 0, [](const std::string&) {});
  images.train->start(0);
  for (std::size_t step = 0; const auto batch = images.train->next(); ++step) {
    ASSERT_LT(step, costs.size());
    const Tensor cost = at::cross_entropy_loss(forward(weights, batch->images), batch->labels);
    EXPECT_NEAR(costs[step], cost.item<double>(), 1e-10) << "step " << step;
    const auto gradients = collective::grad(cost, trained);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < trained.size(); ++i) trained[i].sub_(gradients[i], 0.05);
  }
}

TEST(NetworksTest, FieldsMatchPlainTorch) {
  expect_same_in_torch(toy(kFields), [](Weights& w, const Tensor& images) {
    const auto two = [](std::int64_t n) { return std::vector<std::int64_t>{n, n}; };
    Tensor x = at::gelu(at::conv2d(images, w["wide.weight"], w["wide.bias"], two(1), two(2), two(2)));
    x = at::group_norm(x, 3, w["groups.weight"], w["groups.bias"], 1e-5);
    x = at::conv2d(x, w["grouped.weight"], w["grouped.bias"], two(2), two(1), two(1), 2);
    x = at::leaky_relu(x, 0.2);
    x = at::instance_norm(x, w["instances.weight"], w["instances.bias"], {}, {}, true, 0.1, 1e-5, false);
    x = at::conv_transpose2d(x, w["back.weight"], w["back.bias"], two(2), two(1), {1, 0}, 2);
    EXPECT_EQ(x.sizes().slice(1), (at::IntArrayRef{4, 12, 9}));
    x = at::elu(x, 0.7);
    x = at::upsample_bilinear2d(x, {24, 18}, false, 2.0, 2.0);
    x = at::avg_pool2d(x, two(3), two(2), two(1), false, /*count_include_pad=*/false);
    x = at::layer_norm(x, {4, 12, 9}, w["images.weight"], w["images.bias"]);
    x = at::silu(at::upsample_nearest2d(x, {7, 10}));
    x = at::softplus(at::adaptive_avg_pool2d(x, {3, 2}).flatten(1));
    x = at::sigmoid(at::linear(x, w["first.weight"].flatten(1), w["first.bias"]));
    x = at::layer_norm(x, {8}, w["vectors.weight"], w["vectors.bias"]);
    x = at::silu(at::linear(x, w["second.weight"], w["second.bias"]));
    return at::linear(x, w["last.weight"], w["last.bias"]);
  });
}

TEST(NetworksTest, ResidualBlocksMatchPlainTorch) {
  std::string model = kResidual;
  model.replace(model.find("dropout: 0.2"), 12, "leaky_relu: 0.3");
  expect_same_in_torch(toy(model), [](Weights& w, const Tensor& images) {
    const std::vector<std::int64_t> one{1, 1};
    const std::vector<std::int64_t> two{2, 2};
    const auto conv = [&](const Tensor& x, const std::string& name, const std::vector<std::int64_t>& stride,
                          std::int64_t padding) {
      const auto bias = w.contains(name + ".bias") ? std::optional<Tensor>(w[name + ".bias"]) : std::nullopt;
      return at::conv2d(x, w[name + ".weight"], bias, stride, {padding, padding});
    };
    const auto linear = [&](const Tensor& x, const std::string& name) {
      return at::linear(x, w[name + ".weight"].flatten(1), w[name + ".bias"]);
    };
    Tensor x = conv(images, "layer0", one, 1);
    Tensor inner = at::relu(at::batch_norm(conv(x, "layer1.0", one, 1), w["layer1.1.weight"], w["layer1.1.bias"], {},
                                           {}, true, 0.1, 1e-5, false));
    inner = inner + at::tanh(conv(inner, "layer1.3.0", one, 0));
    x = x + inner;
    Tensor down = at::group_norm(conv(x, "down.0", two, 1), 2, w["down.1.weight"], w["down.1.bias"]);
    x = at::elu(at::leaky_relu(down, 0.3) + conv(x, "down.shortcut.match", two, 0), 0.5);
    x = std::get<0>(at::adaptive_max_pool2d(x, {4, 4})).flatten(1);
    x = at::tanh(linear(x, "layer4"));
    x = x + linear(at::gelu(linear(x, "layer5.0")), "layer5.1");
    return linear(x, "layer6");
  });
}

// Names must not change, because checkpoints of older runs contain them.
TEST(NetworksTest, WeightNamesAreStable) {
  Trial run(toy(kResidual), world());
  std::vector<std::string> names;
  for (const Parameter* parameter : run.network.parameters()) names.push_back(parameter->name);
  EXPECT_THAT(
      names, ElementsAre("layer0.weight", "layer0.bias", "layer1.0.weight", "layer1.1.weight", "layer1.1.bias",
                         "layer1.1.running_mean", "layer1.1.running_var", "layer1.3.0.weight", "layer1.3.0.bias",
                         "down.0.weight", "down.0.bias", "down.1.weight", "down.1.bias", "down.shortcut.match.weight",
                         "down.shortcut.match.bias", "layer4.weight", "layer4.bias", "layer5.0.weight", "layer5.0.bias",
                         "layer5.1.weight", "layer5.1.bias", "layer6.weight", "layer6.bias"));
}

// Layers inside a block draw different weights than each other and than the layers outside.
TEST(NetworksTest, LayersOfBlocksDrawDifferentWeights) {
  const Experiment experiment = toy(R"(
model:
  batch_size: 8
  layers:
    - residual: [conv: {maps: 2, kernel: 1}, conv: {maps: 2, kernel: 1}]
    - residual: {layers: [conv: {maps: 2, kernel: 1}], shortcut: [conv: {maps: 2, kernel: 1}]}
    - conv: {maps: 2, kernel: 1}
    - linear: 3
)");
  Trial run(experiment, alone());
  std::set<double> first;
  for (const Parameter* parameter : run.network.parameters()) {
    if (parameter->value.dim() == 4) first.insert(parameter->value.detach().flatten()[0].item<double>());
  }
  EXPECT_EQ(first.size(), 6U);  // five convolutions and the linear layer
}

// `weft check` counts parameters without building the network.
TEST(NetworksTest, CheckCountsTheParametersOfTheNetwork) {
  for (const char* model : kAll) {
    Trial run(toy(model), alone());
    std::int64_t held = 0;
    for (const Parameter* parameter : run.network.parameters()) {
      if (parameter->trained) held += parameter->value.numel();
    }
    std::int64_t said = 0;
    for (const LayerRow& row : explain(run.experiment, {})) said += row.parameters;
    EXPECT_EQ(said, held);
  }
}

}  // namespace
}  // namespace weft::experiment
