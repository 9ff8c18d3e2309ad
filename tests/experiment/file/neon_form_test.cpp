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
  EXPECT_EQ(error_of(replaced(text, "nin: 784", "nin: 785")), "");
  EXPECT_THAT(error_of(replaced(text, "nin: 784", "nin: 786")), HasSubstr("expected nin 784 in layer 'hidden'"));
  const std::string without = text_of("mnist_numpy_mlp.yaml");
  EXPECT_THAT(error_of(replaced(without, "nin: 784", "nin: 785")), HasSubstr("expected nin 784"));
}

const WeightSettings& weights_of(const Experiment& experiment, std::size_t layer) {
  return dynamic_cast<const LinearSettings&>(*experiment.model.layers[layer].settings).weights;
}

TEST(NeonFormTest, DrawsBiasesLikeWeights) {
  const std::string text = replaced(text_of("mnist_vecpar_mlp.yaml"), ", bias_init: 0.0", "");
  const Experiment experiment = parse_experiment(text, "file.yaml");
  EXPECT_TRUE(weights_of(experiment, 0).bias);
  EXPECT_TRUE(weights_of(experiment, 0).init.draws_bias);
  EXPECT_FALSE(weights_of(experiment, 1).init.draws_bias);
  auto generator = layer_generator(1, 0);
  const at::Tensor biases = initial_biases(weights_of(experiment, 0).init, 1000, 784, at::kDouble, generator);
  EXPECT_EQ(biases.sizes(), at::IntArrayRef({1000}));
  EXPECT_NEAR(biases.std().item<double>(), 0.05, 0.01);
  EXPECT_FALSE(weights_of(parse_experiment(text_of("mnist_numpy_mlp.yaml"), "file.yaml"), 0).bias);
}

TEST(NeonFormTest, NodeNormalizedWeightsAreWithinTheirBound) {
  const WeightInit init{.kind = WeightInit::Kind::kNodeNormalized, .scale = 2};
  auto generator = layer_generator(1, 0);
  const at::Tensor weights = initial_weights(init, {30, 70}, 70, at::kDouble, generator);
  const double bound = 2 * std::sqrt(6.0 / 100);
  EXPECT_LE(weights.abs().max().item<double>(), bound);
  EXPECT_GT(weights.abs().max().item<double>(), 0.99 * bound);
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
  const std::string named = replaced(text, "sample_pct: 10", "sample_pct: 10, batch_size: 400, num_procs: 4");
  EXPECT_EQ(parse_experiment(named, "file.yaml").model.batch_size, 400);
  EXPECT_EQ(parse_experiment(text, "file.yaml").model.batch_size, 100);
  const std::string tiles =
      replaced(text_of("mnist_vecpar_mlp.yaml"), "sample_pct: 10", "sample_pct: 10, batch_size: 400");
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
