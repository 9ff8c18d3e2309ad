// Tests loading of both file formats, and the error messages for invalid files.
#include "weft/experiment/file/load.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <random>

#include "tests/experiment/file/example_files.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/local_filter.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

TEST(LoadTest, EveryExampleIsValid) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kExamples)) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_NO_THROW(static_cast<void>(load_experiment(entry.path()))) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 13);
}

TEST(LoadTest, ReadsTheReferenceConvnet) {
  const Experiment experiment = load_experiment(kExamples / "mnist_distarray_convnet.yaml");
  EXPECT_EQ(experiment.model.name, "Convnet");
  EXPECT_TRUE(experiment.model.split);
  EXPECT_EQ(experiment.split.mode, SplitSpec::Mode::kTiles);
  EXPECT_DOUBLE_EQ(experiment.dataset.sample, 0.1);
  EXPECT_FALSE(experiment.dataset.shuffle);  // neon never shuffles
  EXPECT_EQ(experiment.model.cost, Cost::kLogisticCrossEntropy);
  ASSERT_EQ(experiment.model.layers.size(), 6U);
  EXPECT_TRUE(experiment.model.layers[0].is("conv"));
  EXPECT_EQ(experiment.model.layers[4].settings->activation().kind, Activation::kRectified);
  Problems problems("f");
  const auto sizes = layer_sizes(experiment, problems);
  EXPECT_EQ(sizes[1].in.shape, (Sizes{24, 24}));
  EXPECT_EQ(sizes[1].out.shape, (Sizes{12, 12})) << "the stride is 2";
  EXPECT_EQ(experiment.model.layers[4].settings->parameter_count(sizes[4]), 800 * sizes[4].out.maps) << "no bias";
  EXPECT_EQ(sizes[2].out.describe(), "50 maps of 8 x 8");
  EXPECT_EQ(sizes[4].in.values(), 800);
}

TEST(LoadTest, OlderAndLaterNeonFilesDescribeTheSameNetwork) {
  const Experiment older = load_experiment(kExamples / "mnist_distarray_gb.yaml");
  const Experiment later = load_experiment(kExamples / "mnist_halopar_gb.yaml");
  ASSERT_EQ(older.model.layers.size(), later.model.layers.size());
  Problems problems("f");
  const auto older_sizes = layer_sizes(older, problems);
  const auto later_sizes = layer_sizes(later, problems);
  for (std::size_t i = 0; i < older.model.layers.size(); ++i) {
    EXPECT_EQ(older.model.layers[i].type, later.model.layers[i].type);
    EXPECT_EQ(older_sizes[i].out, later_sizes[i].out);
    if (older.model.layers[i].settings->parameter_count(older_sizes[i]) == 0) continue;
    EXPECT_DOUBLE_EQ(older.model.layers[i].rule->rate, later.model.layers[i].rule->rate);
    if (!older.model.layers[i].is("local_filter")) continue;
    const auto rate = [&](const Experiment& experiment) {
      return dynamic_cast<const LocalFilterSettings&>(*experiment.model.layers[i].settings).pretrain_rate;
    };
    EXPECT_DOUBLE_EQ(rate(older), rate(later));
    EXPECT_DOUBLE_EQ(rate(later), 0.01);
  }
}

TEST(LoadTest, ReadsRulesAndBiasesOfLaterNeonFiles) {
  const Experiment experiment = load_experiment(kExamples / "mnist_datapar_mlp.yaml");
  EXPECT_EQ(experiment.split.mode, SplitSpec::Mode::kBatch);
  Problems problems("f");
  const auto sizes = layer_sizes(experiment, problems);
  EXPECT_EQ(experiment.model.layers[0].settings->parameter_count(sizes[0]), (784 + 1) * sizes[0].out.maps) << "a bias";
  EXPECT_DOUBLE_EQ(experiment.model.layers[1].rule->momentum.at(5), 0.9);
  EXPECT_EQ(load_experiment(kExamples / "mnist_numpy_mlp.yaml").split.mode, SplitSpec::Mode::kNone);
}

TEST(LoadTest, AppliesOverrides) {
  const Experiment experiment = load_experiment(
      kExamples / "mnist_numpy_convnet.yaml", {"model.num_epochs=7", "backend.rng_seed=5", "datasets[0].shuffle=true"});
  EXPECT_EQ(experiment.model.epochs, 7);
  EXPECT_TRUE(experiment.dataset.shuffle);
  EXPECT_EQ(experiment.seed, 5U);
  EXPECT_EQ(load_experiment(kExamples / "mnist_tuned.yaml", {"model.optimizer.rate=0.5"}).model.rule.rate, 0.5);
}

TEST(LoadTest, ErrorsHaveLocationsAndSuggestions) {
  const std::string text = text_of("mnist_numpy_convnet.yaml");
  EXPECT_THAT(error_of(replaced(text, "num_epochs", "num_epoch")),
              AllOf(HasSubstr("file.yaml:"), HasSubstr("unknown key 'num_epoch' in a model"),
                    HasSubstr("did you mean 'num_epochs'?"), HasSubstr("missing key 'num_epochs' in a model")));
  EXPECT_THAT(error_of(replaced(text, "num_epochs: 2", "num_epochs: two")),
              HasSubstr("must be a whole number from 0 to 1000000000, got 'two'"));
  EXPECT_THAT(error_of(replaced(text, "layer.MaxPoolingLayer", "layer.MaxPolingLayer")),
              HasSubstr("did you mean neon.models.layer.MaxPoolingLayer?"));
  EXPECT_THAT(error_of(replaced(text, "fit_predict_err", "fit_predict_error")), HasSubstr("expected an experiment"));
  EXPECT_THAT(error_of(replaced(text, "'~/data'", "[1]")), HasSubstr("must be text, got a list of 1 item"));
  EXPECT_THAT(error_of(replaced(text, "dist_flag: False", "dist_flag: 3")), HasSubstr("must be true or false"));
}

TEST(LoadTest, ReportsSizesThatDoNotMatch) {
  const std::string text = text_of("mnist_numpy_convnet.yaml");
  EXPECT_THAT(
      error_of(replaced(text, "nin: 800", "nin: 801")),
      HasSubstr("expected nin 800 in layer 'hidden', because layers up to 'pool2' give 50 maps of 4 x 4; got 801"));
  EXPECT_THAT(error_of(replaced(text, "ifmshape: [24, 24]", "ifmshape: [24, 25]")),
              HasSubstr("expected ifmshape 24 x 24"));
  EXPECT_THAT(error_of(replaced(text, "nifm: 20, nofm: 50", "nifm: 21, nofm: 50")), HasSubstr("expected nifm 20"));
  EXPECT_THAT(error_of(replaced(text, "nout: 10", "nout: 9")), HasSubstr("expected 10 outputs of the last layer"));
  EXPECT_THAT(error_of(replaced(text, "fshape: [5, 5]", "fshape: [50, 50]")), HasSubstr("window that fits"));
  EXPECT_THAT(error_of(replaced(text, "logistic.Logistic", "rectified.RectLin")), HasSubstr("a logistic last layer"));
}

// Returns an experiment in the plain form.
std::string plain(const std::string& model, const std::string& data = "") {
  return "data: {set: blobs, classes: 3, shape: [8, 8]" + data + "}\nmodel:\n" + model;
}

TEST(LoadTest, RejectsExperimentsThatWouldFailLater) {
  const std::string linear = "  layers: [{linear: 3}]\n";
  EXPECT_EQ(error_of(plain(linear)), "");
  EXPECT_THAT(error_of(plain("  layers: [{linear: {outputs: 5, name: same}}, {linear: {outputs: 3, name: same}}]\n")),
              HasSubstr("layer name 'same' is already used"));
  EXPECT_THAT(error_of(plain("  layers: [{conv: {maps: 2, kernel: [3, 3, 5]}}, {linear: 3}]\n")),
              HasSubstr("or a list of two"));
  EXPECT_THAT(error_of(plain(linear, ", sample: 0")), HasSubstr("'sample'"));
  EXPECT_THAT(error_of(plain(linear, ", test_images: 0")), HasSubstr("'test_images'"));
  EXPECT_THAT(error_of(plain("  optimizer: {type: adam, rate: 1, beta1: 1}\n" + linear)), HasSubstr("'beta1'"));
  EXPECT_THAT(error_of(plain("  pretrain: {spot_check: true}\n  layers: [{linear: 5}, {linear: 3}]\n")),
              HasSubstr("expected maps before the last layer"));
  EXPECT_THAT(error_of(plain("  layers: [{residual_stack: {depth: 4, layer_parallel: {levels: 2}}}, {linear: 3}]\n")),
              HasSubstr("expected split: none with layer_parallel"));
  EXPECT_THAT(error_of(plain("  layers: [{max_pool: {kernel: 2, padding: 2}}, {linear: 3}]\n")),
              HasSubstr("padding of at most half a window"));
  EXPECT_THAT(error_of(plain("  layers: [{linear: {outputs: 3, name: ../x}}]\n")),
              HasSubstr("cannot be used as a file name"));
  EXPECT_THAT(error_of("name: ..\n" + plain(linear)), HasSubstr("cannot name a folder"));
  EXPECT_THAT(error_of(plain("  pretrain: {initial_epochs: 1}\n  layers: [{conv: {maps: 3, kernel: 3}}, "
                             "global_average_pool]\n")),
              HasSubstr("expected a linear last layer"));
}

TEST(LoadTest, RejectsNamesThatFilesCannotHave) {
  for (const char* name : {"\"a\\nb\"", "\"a\\x7fb\"", "'\xff'", "'\xc3('"}) {
    EXPECT_THAT(
        error_of(plain("  layers: [{linear: {outputs: 3, name: " + std::string(name) + "}}]\n")),
        AnyOf(HasSubstr("cannot be used as a file name"), HasSubstr("invalid YAML"), HasSubstr("not a text file")))
        << name;
  }
  EXPECT_EQ(error_of(plain("  layers: [{linear: {outputs: 3, name: \xc3\xa9t\xc3\xa9}}]\n")), "");
}

TEST(LoadTest, RejectsLayersThatExceedMemory) {
  const std::string wide = "  layers: [{linear: 1000000000}, {linear: 1000000000}, {linear: 3}]\n";
  EXPECT_THAT(error_of(plain(wide)), HasSubstr("layer 'layer1' has more than 1099511627776 values or weights"));
  const std::string maps = "  layers: [{conv: {maps: 1000000000, kernel: 8, padding: 1000000}}, {linear: 3}]\n";
  EXPECT_THAT(error_of(plain(maps)), HasSubstr("layer 'layer0' has more than 1099511627776 values or weights"));
}

TEST(LoadTest, SyntheticSetsLimitTheirClasses) {
  const auto data = [](const std::string& set) { return "data: {set: " + set + "}\nmodel: {layers: [{linear: 2}]}\n"; };
  EXPECT_EQ(error_of(data("toy_images")), "");
  EXPECT_EQ(error_of(data("shapes, classes: 2")), "");
  EXPECT_THAT(error_of(data("toy_images, classes: 3")), HasSubstr("'classes' of data"));
  EXPECT_THAT(error_of(data("shapes, classes: 7")), HasSubstr("'classes' of data"));
  EXPECT_THAT(error_of(data("blobs")), HasSubstr("expected 10 outputs"));
}

TEST(LoadTest, ErrorsInOverridesNameTheOverride) {
  const auto error_with = [](const std::string& override) -> std::string {
    try {
      static_cast<void>(load_experiment(kExamples / "mnist_tuned.yaml", {"seed=5", override}));
    } catch (const ExperimentError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_with("model.epochs=3"), "");
  EXPECT_EQ(error_with("model.epoch=3"), "--set model.epoch=3: unknown key 'epoch' in model; did you mean 'epochs'?");
  EXPECT_THAT(error_with("model.epochs=many"),
              testing::StartsWith("--set model.epochs=many: 'epochs' of model must be"));
  EXPECT_THAT(error_with("model.optimizer={type: adam, rat: 1}"),
              HasSubstr("--set model.optimizer={type: adam, rat: 1}: unknown key 'rat'"));
}

TEST(LoadTest, ReportsSeveralMistakesAtOnce) {
  std::string text = replaced(text_of("mnist_numpy_convnet.yaml"), "batch_size: &bs 100", "batch_size: &bs -1");
  text = replaced(text, "stride: 2", "strid: 2");
  const std::string error = error_of(text);
  EXPECT_THAT(error, AllOf(HasSubstr("batch_size"), HasSubstr("did you mean 'stride'?")));
}

TEST(LoadTest, RejectsHugeNumbers) {
  const std::string text = text_of("mnist_numpy_convnet.yaml");
  for (const char* huge : {"99999999999999999999999", "1e400", "9223372036854775807", "0x7fffffff", "1e9", ".inf"}) {
    EXPECT_NE(error_of(replaced(text, "num_epochs: 2", std::string("num_epochs: ") + huge)), "") << huge;
  }
  for (const char* huge : {"1e400", ".nan", ".inf", "-1"}) {
    EXPECT_NE(error_of(replaced(text, "&rate 0.01", std::string("&rate ") + huge)), "") << huge;
  }
}

// Nested aliases would expand to 9^39 words, in every place that a reader visits.
TEST(LoadTest, RejectsAliasBombsInBoundedMemory) {
  std::string laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string name = "a" + std::to_string(i);
    const std::string below = "*a" + std::to_string(i - 1);
    laughs.append(name).append(": &").append(name).append(" [").append(below);
    for (int j = 1; j < 9; ++j) laughs.append(", ").append(below);
    laughs += "]\n";
  }
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // kilobytes
  };
  const auto before = peak();
  for (const char* rest : {"data: *a39\nmodel: *a39\nsplit: *a39\n", "model: {layers: *a39, epochs: *a39}\n",
                           "model: {layers: [{conv: *a39}, {linear: {outputs: *a39, weight_init: *a39}}, *a39]}\n"}) {
    const std::string error = error_of(laughs + rest);
    EXPECT_THAT(error, HasSubstr("file.yaml"));
    EXPECT_LT(error.size(), 20'000U);
  }
  EXPECT_LT(peak() - before, 50'000);
}

double seconds_of_processor(const std::function<void()>& work) {
  const std::clock_t before = std::clock();
  work();
  return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
}

// Thousands of layers that are aliases of one mapping with thousands of unknown keys once took nine minutes.
TEST(LoadTest, ReadsAliasesOfLargeMappingsInBoundedTime) {
  const auto hostile = [](int keys, const std::string& key, int layers) {
    std::string text = "layer: &l {linear: {outputs: 3";
    for (int i = 0; i < keys; ++i) text += ", a" + std::to_string(i) + key + ": 1";
    text += "}}\ndata: {set: blobs}\nmodel: {layers: [*l";
    for (int i = 1; i < layers; ++i) text += ", *l";
    return text + "]}\n";
  };
  EXPECT_THAT(error_of(hostile(20'000, "", 15'000)), HasSubstr("at most 1000 are allowed"));
  EXPECT_THAT(error_of(hostile(3, "", 15'000)), HasSubstr("expected at most 10000 layers"));
  // The limit is a hundredth of the former time, and generous enough for sanitizers.
  EXPECT_LT(seconds_of_processor([&] { EXPECT_NE(error_of(hostile(990, "", 9'990)), ""); }), 5);
  EXPECT_LT(seconds_of_processor([&] { EXPECT_NE(error_of(hostile(990, "_dtype", 9'990)), ""); }), 5);
}

TEST(LoadTest, ReportsMistakesInThePlainForm) {
  const std::string text = text_of("mnist_tuned.yaml");
  EXPECT_EQ(error_of(text), "");
  EXPECT_THAT(error_of(replaced(text, "- max_pool", "- max_pol")), HasSubstr("did you mean 'max_pool'?"));
  EXPECT_THAT(error_of(replaced(text, "type: adam", "type: adan")), HasSubstr("did you mean 'adam'?"));
  EXPECT_THAT(error_of(replaced(text, "linear: 10", "linear: 11")), HasSubstr("expected 10 outputs"));
  EXPECT_THAT(error_of(replaced(text, "split: tiles", "split: tile")), HasSubstr("tiles, batch, none or a mapping"));
  EXPECT_THAT(error_of("- 1"), HasSubstr("the experiment must be a mapping"));
  EXPECT_THAT(error_of("5"), HasSubstr("the experiment must be a mapping"));
}

// Random damage to a valid file gives an experiment or an error with the file name.
TEST(LoadTest, ReportsRandomDamage) {
  const std::string good = text_of("mnist_halopar_gb.yaml");
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = good;
    const auto at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text.erase(at, 1 + random() % 20);
        break;
      case 1:
        text.insert(at, 1, "{}[]:,&*!' 9z"[random() % 13]);
        break;
      default:
        text[at] = "{}[]:,&*!' 9z"[random() % 13];
    }
    const std::string error = error_of(text);
    refused += error.empty() ? 0 : 1;
    EXPECT_THAT(error, AnyOf(std::string(), HasSubstr("file.yaml")));
  }
  EXPECT_GT(refused, 100);
}

TEST(ScheduleTest, ComputesMomentumAndRates) {
  const MomentumSchedule momentum{.initial = 0.5, .saturated = 0.9, .start = 2, .saturate = 6};
  EXPECT_DOUBLE_EQ(momentum.at(0), 0.5);
  EXPECT_DOUBLE_EQ(momentum.at(4), 0.7);
  EXPECT_DOUBLE_EQ(momentum.at(6), 0.9);
  EXPECT_DOUBLE_EQ(momentum.at(60), 0.9);
  const RateSchedule step{.kind = RateSchedule::Kind::kStep, .steps = {2, 4}, .gamma = 0.1};
  EXPECT_DOUBLE_EQ(step.at(1.9, 10), 1);
  EXPECT_NEAR(step.at(4, 10), 0.01, 1e-15);
  const RateSchedule cosine{.kind = RateSchedule::Kind::kCosine, .last = 0.2};
  EXPECT_DOUBLE_EQ(cosine.at(0, 10), 1);
  EXPECT_NEAR(cosine.at(5, 10), 0.6, 1e-12);
  EXPECT_NEAR(cosine.at(10, 10), 0.2, 1e-12);
}

}  // namespace
}  // namespace weft::experiment
