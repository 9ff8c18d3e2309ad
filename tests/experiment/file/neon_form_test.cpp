// Tests neon conventions that its code defines but its documentation omits.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/experiment/file/example_files.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/linear.h"

namespace weft::experiment {
namespace {

using testing::HasSubstr;

TEST(NeonFormTest, DefaultsToFloat64) {
  const std::string text = text_of("mnist_distarray_convnet.yaml");
  EXPECT_TRUE(parse_experiment(text, "file.yaml").float64);
  const auto with = [&](const std::string& type) {
    return replaced(text, "rng_seed: 0", "rng_seed: 0, default_dtype: " + type);
  };
  for (const char* single :
       {"float32", "np.float32", "!!python/name:numpy.float32 ''", "!!python/name:numpy.float32 "}) {
    EXPECT_FALSE(parse_experiment(with(single), "file.yaml").float64) << single;
  }
  for (const char* twice : {"float64", "numpy.float64", "!!python/name:numpy.float64 ''"}) {
    EXPECT_TRUE(parse_experiment(with(twice), "file.yaml").float64) << twice;
  }
  EXPECT_THAT(error_of(with("float16")), HasSubstr("'default_dtype' must be float32 or float64, got 'float16'"));
}

TEST(NeonFormTest, NinMayCountTheBias) {
  const std::string text = text_of("mnist_vecpar_mlp.yaml");
  EXPECT_EQ(error_of(text), "");
  EXPECT_EQ(error_of(replaced(text, "nin: 785", "nin: 784")), "");
  EXPECT_THAT(error_of(replaced(text, "nin: 785", "nin: 786")), HasSubstr("expected nin 784 in layer 'hidden'"));
  const std::string without = text_of("mnist_distarray_mlp.yaml");
  EXPECT_THAT(error_of(replaced(without, "nin: 784", "nin: 785")), HasSubstr("expected nin 784"));
}

const WeightSettings& weights_of(const Experiment& experiment, std::size_t layer) {
  return dynamic_cast<const LinearSettings&>(*experiment.model.layers[layer].settings).weights;
}

TEST(NeonFormTest, DrawsBiasesLikeWeights) {
  const Experiment experiment = load_experiment(kExamples / "mnist_vecpar_mlp.yaml");
  EXPECT_TRUE(weights_of(experiment, 0).bias);
  EXPECT_TRUE(weights_of(experiment, 0).init.draws_bias);
  EXPECT_FALSE(weights_of(experiment, 1).init.draws_bias);
  auto generator = layer_generator(1, 0);
  const at::Tensor biases = initial_biases(weights_of(experiment, 0).init, 1000, 784, at::kDouble, generator);
  EXPECT_EQ(biases.sizes(), at::IntArrayRef({1000}));
  EXPECT_NEAR(biases.std().item<double>(), 0.01, 0.002);
  EXPECT_FALSE(weights_of(load_experiment(kExamples / "mnist_distarray_mlp.yaml"), 0).bias);
}

TEST(NeonFormTest, NodeNormalizedWeightsAreWithinTheirBound) {
  const WeightInit init{.kind = WeightInit::Kind::kNodeNormalized, .scale = 2};
  auto generator = layer_generator(1, 0);
  const at::Tensor weights = initial_weights(init, {30, 70}, 70, at::kDouble, generator);
  const double bound = 2 * std::sqrt(6.0 / 100);
  EXPECT_LE(weights.abs().max().item<double>(), bound);
  EXPECT_GT(weights.abs().max().item<double>(), 0.99 * bound);
}

double momentum_of(const Experiment& experiment, std::size_t layer, std::int64_t epoch) {
  return experiment.model.layers[layer].rule->momentum.at(epoch);
}

// In neon's versions without learning rules, LayerWithNoBias, ConvLayer and LocalFilteringLayer ignore the momentum.
TEST(NeonFormTest, OnlyLayerUsesTheModelsMomentum) {
  for (const char* file : {"mnist_distarray_convnet.yaml", "mnist_distarray_gb.yaml", "mnist_numpy_gb.yaml"}) {
    const Experiment experiment = load_experiment(kExamples / file);
    for (std::size_t i = 0; i < experiment.model.layers.size(); ++i) {
      for (const std::int64_t epoch : {0, 5, 9}) EXPECT_EQ(momentum_of(experiment, i, epoch), 0) << file << i;
    }
  }
  EXPECT_EQ(momentum_of(load_experiment(kExamples / "mnist_numpy_mlp.yaml"), 0, 0), 0.9);
}

TEST(NeonFormTest, MomentumSchedulesDependOnTheVersion) {
  const std::string schedule =
      "type: linear_monotone, initial_coef: 0.5, start_epoch: 2, saturate_epoch: 6, saturated_coef: 0.9";
  const std::string early = replaced(
      text_of("mnist_numpy_mlp.yaml"),
      "type: linear_monotone, initial_coef: 0.90, start_epoch: 5, saturate_epoch: 5, saturated_coef: 0.90", schedule);
  const std::string later = replaced(text_of("mnist_datapar_mlp.yaml"), "type: constant, initial_coef: 0.90", schedule);
  const auto values = [](const std::string& text) {
    std::vector<double> result;
    for (const std::int64_t epoch : {0, 1, 2, 4, 6, 7, 100})
      result.push_back(momentum_of(parse_experiment(text, "file.yaml"), 1, epoch));
    return result;
  };
  EXPECT_EQ(values(early), (std::vector{0.9, 0.9, 0.9, 0.7, 0.5, 0.9, 0.9}));
  EXPECT_EQ(values(later), (std::vector{0.5, 0.5, 0.5, 0.7, 0.9, 0.9, 0.9}));
}

// neon 0.6 has one `dataset`. Its Layer has a bias only if bias_init is given, and its LayerDist never uses one.
std::string version_6(const std::string& file) {
  std::string text = replaced(text_of(file), "  datasets: [\n    !obj", "  dataset: !obj");
  text = replaced(text, "    },\n  ],\n  model:", "    },\n  model:");
  text = replaced(text, "nin: 785", "nin: 784");
  text = replaced(text, "nin: 101", "nin: 100");
  return replaced(text, "logistic.Logistic {}", "logistic.Logistic { shortcut_deriv: True }");
}

TEST(NeonFormTest, ReadsVersion6) {
  const std::string layers = version_6("mnist_datapar_mlp.yaml");
  ASSERT_EQ(error_of(layers), "");
  const Experiment unsplit = parse_experiment(layers, "file.yaml");
  EXPECT_FALSE(weights_of(unsplit, 0).bias);
  EXPECT_TRUE(weights_of(unsplit, 1).bias);
  EXPECT_EQ(unsplit.model.batch_size, 300);
  EXPECT_EQ(unsplit.model.cost, Cost::kLogisticCrossEntropy);
  const Experiment split = parse_experiment(version_6("mnist_vecpar_mlp.yaml"), "file.yaml");
  EXPECT_FALSE(weights_of(split, 0).bias);
  EXPECT_FALSE(weights_of(split, 1).bias);
}

TEST(NeonFormTest, ShortcutDerivFalseSelectsNeonsDerivative) {
  const std::string text = text_of("mnist_distarray_mlp.yaml");
  EXPECT_EQ(parse_experiment(text, "file.yaml").model.cost, Cost::kLogisticCrossEntropy);
  const std::string exact = replaced(text, "CrossEntropy {}", "CrossEntropy { shortcut_deriv: False }");
  EXPECT_EQ(parse_experiment(exact, "file.yaml").model.cost, Cost::kBinaryCrossEntropy);
  EXPECT_THAT(error_of(replaced(text, "CrossEntropy {}", "CrossEntropy { shortcut_deriv: 3 }")),
              HasSubstr("'shortcut_deriv' of a cost must be true or false"));
}

TEST(NeonFormTest, NotesKeysAndBackendsWithoutEffect) {
  EXPECT_THAT(load_experiment(kExamples / "mnist_vecpar_mlp.yaml").notes, testing::IsEmpty());
  std::string text = replaced(text_of("mnist_datapar_mlp.yaml"), "cpu.CPU { rng_seed: 0 }",
                              "gpu.GPUDataDist { rng_seed: 0, seterr_handling: { all: 'warn' } }");
  text = replaced(text, "num_epochs: 30", "num_epochs: 30, serialized_path: './mlp.pkl'");
  EXPECT_THAT(parse_experiment(text, "file.yaml").notes,
              testing::ElementsAre("file.yaml:5:12: note: GPUDataDist runs on the CPU",
                                   HasSubstr("note: 'seterr_handling' of a backend has no effect in weft"),
                                   HasSubstr("note: 'serialized_path' of a model has no effect in weft")));
}

// One of neon's files contains `olayer:*lastlayer`, which neon rejects, too.
TEST(NeonFormTest, ReportsAMissingSpaceAfterAColon) {
  EXPECT_THAT(error_of(replaced(text_of("mnist_vecpar_mlp.yaml"), "olayer: output", "olayer:*lastlayer")),
              HasSubstr("unknown key 'olayer:*lastlayer' in a cost; YAML needs a space after the colon of 'olayer:'"));
}

TEST(NeonFormTest, ToyImagesHaveNeonsDefaults) {
  const Experiment toys = load_experiment(kExamples / "toy_images_vecpar_mlp.yaml");
  EXPECT_EQ(image_extent(toys.dataset).describe(), "3 maps of 32 x 32");
  EXPECT_EQ(class_count(toys.dataset), 2);
  EXPECT_EQ(toys.dataset.images, 128);
  EXPECT_EQ(toys.dataset.test_images, 128);
}

TEST(NeonFormTest, DataparTakesTheBatchSizeOfTheDataset) {
  const std::string text = text_of("mnist_datapar_mlp.yaml");
  EXPECT_EQ(parse_experiment(text, "file.yaml").model.batch_size, 300);
  const std::string named = replaced(text, "batch_size: 300", "batch_size: 400, num_procs: 4");
  EXPECT_EQ(parse_experiment(named, "file.yaml").model.batch_size, 400);
  EXPECT_EQ(parse_experiment(replaced(text, "batch_size: 300,", ""), "file.yaml").model.batch_size, 100);
  const std::string tiles =
      replaced(text_of("mnist_vecpar_mlp.yaml"), "sample_pct: 100", "sample_pct: 100, batch_size: 400");
  EXPECT_EQ(parse_experiment(tiles, "file.yaml").model.batch_size, 100);
}

TEST(NeonFormTest, AcceptsKeysAndClassesOfLaterFiles) {
  const std::string text = text_of("mnist_halopar_gb.yaml");
  for (const char* backend : {"cpu.CPUDist", "cpu.CPUDataDist", "_numpy.Numpy64"}) {
    EXPECT_EQ(error_of(replaced(text, "cpu.CPU {", std::string(backend) + " { dist_mode: halopar, ")), "") << backend;
  }
  EXPECT_EQ(error_of(replaced(text, "lr_params: {", "lr_params: { weight_decay: 0.1, ")), "");
  EXPECT_EQ(error_of(replaced(text, "rng_seed: 0", "rng_seed: 4294967295")), "");
  EXPECT_THAT(error_of(replaced(text, "sum_squared.SumSquaredDiffs", "cross_entropy.CrossEntropy")),
              HasSubstr("pretrain_cost must be SumSquaredDiffs"));
  const std::string padded =
      replaced(text_of("mnist_numpy_convnet.yaml"), "fshape: [5, 5], stride: 1", "fshape: [5, 5], stride: 1, pad: 2");
  EXPECT_THAT(error_of(padded), HasSubstr("expected ifmshape 28 x 28 in layer 'pool1'"));
}

}  // namespace
}  // namespace weft::experiment
