// Lists of layers in weft's own form: their meaning, and the errors of invalid ones.
#include "weft/experiment/file/plain_layers.h"

#include <gmock/gmock.h>

#include "weft/experiment/file/load.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/mesh.h"
#include "weft/experiment/layers/network.h"
#include "weft/experiment/run/check.h"

namespace weft::experiment {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Images of 2 maps of 12 x 10, 3 classes. The list starts in line 4.
std::string file(const std::string& layers, const std::string& model = "") {
  return "data: {set: blobs, shape: [12, 10], maps: 2, classes: 3}\nmodel:\n  layers:\n" + layers + model;
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_experiment(text, "f.yaml"));
  } catch (const ExperimentError& error) {
    return error.what();
  }
  return "";
}

TEST(PlainLayersTest, ComputesTheOutputSizeOfEachLayer) {
  const Experiment experiment = parse_experiment(file(R"(
    - conv: {maps: 4, kernel: [3, 5], dilation: [2, 1]}
    - conv_transpose: {maps: 6, kernel: 4, stride: 2, padding: 1, output_padding: 1}
    - upsample: 2
    - upsample: {size: [5, 9]}
    - adaptive_average_pool: [4, 2]
    - residual: [conv: {maps: 6, kernel: 3, padding: 1}, relu]
    - flatten
    - linear: 3
)"),
                                                 "f.yaml");
  Problems problems("f");
  std::vector<std::string> outputs;
  for (const LayerSizes& sizes : layer_sizes(experiment, problems)) outputs.push_back(sizes.out.describe());
  EXPECT_THAT(outputs,
              testing::ElementsAre("4 maps of 8 x 6", "6 maps of 17 x 13", "6 maps of 34 x 26", "6 maps of 5 x 9",
                                   "6 maps of 4 x 2", "6 maps of 4 x 2", "48 values", "3 values"));
}

TEST(PlainLayersTest, ReadsActivationsByName) {
  const auto first = [](const std::string& layer) {
    return parse_experiment(file("    - " + layer + "\n    - linear: 3\n"), "f.yaml")
        .model.layers[0]
        .settings->activation();
  };
  EXPECT_EQ(first("sigmoid").kind, Activation::kLogistic);
  EXPECT_EQ(first("gelu").kind, Activation::kGelu);
  EXPECT_EQ(first("leaky_relu").below, 0.01);
  EXPECT_EQ(first("leaky_relu: 0.3").below, 0.3);
  EXPECT_EQ(first("elu: {alpha: 2}").below, 2);
  const Activation conv = first("conv: {maps: 2, kernel: 3, activation: leaky_relu, slope: 0.5}");
  EXPECT_EQ(conv.kind, Activation::kLeakyRectified);
  EXPECT_EQ(conv.below, 0.5);
}

struct Mistake {
  const char* layers;
  const char* place;
  const char* text;
};

TEST(PlainLayersTest, ReportsMistakesWithTheirPlaces) {
  const Mistake mistakes[] = {
      {"    - leaky_rely\n", "f.yaml:4:7", "did you mean 'leaky_relu'?"},
      {"    - conv: {maps: 4, kernel: 3, activation: gelo}\n", "f.yaml:4:46", "did you mean 'gelu'?"},
      {"    - conv: {maps: 4, kernel: 3, slope: 0.2}\n", "f.yaml:4:34", "unknown key 'slope'"},
      {"    - conv: {maps: 4, kernel: 3, dilatation: 2}\n", "f.yaml:4:34", "did you mean 'dilation'?"},
      {"    - conv: {maps: 4, kernel: 3, groups: 3}\n", "f.yaml:4:7",
       "groups that divide both 2 input maps and 4 output maps"},
      {"    - conv: {maps: 4, kernel: 6, dilation: 2}\n", "f.yaml:4:7", "a window that fits into 12 x 10"},
      {"    - group_norm: 3\n", "f.yaml:4:7", "groups that divide 2 maps"},
      {"    - group_norm\n", "f.yaml", "missing key 'groups'"},
      {"    - conv_transpose: {maps: 1, kernel: 2, output_padding: 1}\n", "f.yaml:4:7", "output_padding smaller"},
      {"    - conv_transpose: {maps: 1, kernel: 2, padding: 9}\n", "f.yaml:4:7",
       "padding that is smaller than the outputs"},
      {"    - upsample: {mode: nearest}\n", "f.yaml:4:17", "either 'scale' or 'size'"},
      {"    - upsample: {scale: 2, size: 3}\n", "f.yaml:4:17", "got both"},
      {"    - upsample: {scale: 2, align_corners: true}\n", "f.yaml:4:28", "unknown key 'align_corners'"},
      {"    - max_pool: {kernel: 2, count_include_pad: false}\n", "f.yaml:4:29", "unknown key 'count_include_pad'"},
      {"    - adaptive_average_pool: 1\n    - instance_norm\n", "f.yaml:5:7", "more than one cell"},
      {"    - flatten\n    - conv: {maps: 1, kernel: 1}\n", "f.yaml:5:7",
       "expected images before layer 'layer1', got 240"},
      {"    - flatten\n    - batch_norm\n", "f.yaml:5:7", "before flatten"},
      {"    - residual: [conv: {maps: 3, kernel: 1}]\n", "f.yaml:4:7",
       "the layers of residual block 'layer0' return 3 maps of 12 x 10; expected 2 maps of 12 x 10"},
      {"    - residual: {layers: [relu], shortcut: [conv: {maps: 3, kernel: 1}]}\n", "f.yaml:4:7",
       "the size of its shortcut"},
      {"    - residual: [relu, [tanh]]\n", "f.yaml:4:24", "expected a layer as"},
      {"    - residual: [linear: 1000000000, linear: 1000000000]\n", "f.yaml:4:38",
       "layer 'layer0.1' has more than 1099511627776 values or weights"},
      {"    - residual: [relo]\n", "f.yaml:4:18", "did you mean 'relu'?"},
      {"    - residual: {shortcut: [relu]}\n", "f.yaml:4:17", "missing key 'layers'"},
      {"    - residual: relu\n", "f.yaml:4:17", "must be a list"},
      {"    - residual: [{relu: {name: a}}, {tanh: {name: a}}]\n", "f.yaml:4", "'layer0.a' is already used"},
      {"    - residual_stack: {depth: 3, name: s}\n    - conv: {maps: 2, kernel: 1, name: s.2}\n", "f.yaml:5:7",
       "'s.2' is already used"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(error_of(file(mistake.layers + std::string("    - linear: 3\n"))),
                AllOf(HasSubstr(std::string(mistake.place) + ":"), HasSubstr(mistake.text)));
  }
  // The number after the dot is not a layer of the stack.
  EXPECT_EQ(error_of(file("    - residual_stack: {depth: 3, name: s}\n    - conv: {maps: 2, kernel: 1, name: s.3}\n"
                          "    - linear: 3\n")),
            "");
}

TEST(PlainLayersTest, RejectsPretrainingOfFiltersInBlocks) {
  const std::string block =
      "    - residual: [local_filter: {maps: 2, kernel: 1, pretraining: true}]\n    - linear: 3\n";
  EXPECT_EQ(error_of(file(block)), "");
  EXPECT_THAT(error_of(file(block, "  pretrain: {epochs: 1}\n")), HasSubstr("pretraining: false in layer 'layer0.0'"));
}

TEST(PlainLayersTest, SpreadsLayersInBlocks) {
  const std::string block =
      "    - residual: [residual_stack: {depth: 8, layer_parallel: {levels: 2}}]\n    - linear: 3\n";
  EXPECT_THAT(error_of(file(block)), HasSubstr("expected split: none with layer_parallel in 'layer0.0'"));
  const Experiment experiment = parse_experiment("split: none\n" + file(block), "f.yaml");
  EXPECT_EQ(plan_ranks(experiment, 3).copies, 3);
}

// Nested lists by aliases: each level doubles the one before, or adds one more level.
TEST(PlainLayersTest, RejectsListsThatAliasesExpand) {
  std::string doubled = "    - residual: &l0 [relu]\n";
  std::string deep = doubled;
  for (int i = 1; i < 40; ++i) {
    const std::string before = "*l" + std::to_string(i - 1);
    doubled += "    - residual: &l" + std::to_string(i) + " [residual: " + before + ", residual: " + before + "]\n";
    deep += "    - residual: &l" + std::to_string(i) + " [residual: " + before + "]\n";
  }
  EXPECT_THAT(error_of(file(doubled)), HasSubstr("expected at most 10000 layers"));
  EXPECT_THAT(error_of(file(deep)), HasSubstr("layer lists are nested too deeply; expected at most 32 levels"));
}

TEST(PlainLayersTest, RejectsFieldsThatGrowTooLarge) {
  std::string layers;
  for (int i = 0; i < 20; ++i) layers += "    - upsample: 1000\n";
  EXPECT_THAT(error_of(file(layers + "    - linear: 3\n")), HasSubstr("at most 1000000000 rows and columns"));
}

TEST(PlainLayersTest, ReadsMetricsAndRejectsUnknownOnes) {
  const std::string layers = "    - linear: 3\n";
  const auto metrics =
      parse_experiment(file(layers, "  metrics: [error, top2, {top_k: 1}, auc]\n"), "f.yaml").model.metrics;
  ASSERT_EQ(metrics.size(), 3U);  // the error is always measured
  EXPECT_EQ(metrics[0].name, "top2_error");
  EXPECT_EQ(metrics[1].largest, 1);
  EXPECT_EQ(metrics[2].name, "auc");
  EXPECT_THAT(error_of(file(layers, "  metrics: [eror]\n")),
              AllOf(HasSubstr("f.yaml:5:13:"), HasSubstr("did you mean 'error'?")));
  EXPECT_THAT(error_of(file(layers, "  metrics: [top3]\n")),
              AllOf(HasSubstr("f.yaml:5:13:"), HasSubstr("metric 'top3_error' needs more than 3 classes")));
  EXPECT_THAT(error_of(file(layers, "  metrics: [top0]\n")), HasSubstr("expected a metric"));
  EXPECT_THAT(error_of(file(layers, "  metrics: [{top_q: 2}]\n")), HasSubstr("unknown key 'top_q'"));
  EXPECT_THAT(error_of(file(layers, "  metrics: [[auc]]\n")), HasSubstr("expected a metric"));
  EXPECT_THAT(error_of(file(layers, "  metrics: [auc, auc]\n")), HasSubstr("duplicate metric 'auc'"));
}

TEST(CheckTest, ListsTheLayersOfABlock) {
  const Experiment experiment = parse_experiment(
      file("    - residual: {name: block, layers: [conv: {maps: 2, kernel: 3, padding: 1}, flatten, relu],\n"
           "                 shortcut: [flatten]}\n    - linear: 3\n"),
      "f.yaml");
  const std::string report = check_report(experiment, 4);
  for (const char* part : {"block.0", "block.shortcut.0", "residual", "6 x 5", "240 values"})
    EXPECT_THAT(report, HasSubstr(part));
}

TEST(CheckTest, ShowsTheLayersOfARank) {
  const Experiment experiment = parse_experiment(
      "split: none\n" + file("    - residual_stack: {depth: 8, layer_parallel: {levels: 2}}\n    - linear: 3\n"),
      "f.yaml");
  EXPECT_THAT(check_report(experiment, 3), HasSubstr("12 x 10, 2-3 of 8 layers"));
  EXPECT_THAT(check_report(experiment, 4), HasSubstr("12 x 10, 2 of 8 layers"));
  EXPECT_THAT(check_report(experiment, 1), Not(HasSubstr("of 8 layers")));
}

TEST(PlainOptimizerTest, RejectsSchedulesWithoutEffect) {
  const auto with = [](const std::string& schedule) {
    return error_of(file("    - linear: 3\n", "  optimizer: {rate: 1, schedule: " + schedule + "}\n"));
  };
  EXPECT_THAT(with("{type: step, gamma: 0.5}"), HasSubstr("missing key 'epochs' in schedule"));
  EXPECT_THAT(with("{type: step, epochs: []}"), HasSubstr("must list at least one epoch"));
  EXPECT_THAT(with("{gamma: 0.5}"), AllOf(HasSubstr("missing key 'type' in schedule"), Not(HasSubstr("unknown key"))));
  EXPECT_THAT(with("{type: cosine, epochs: [1], gamma: 3}"),
              AllOf(HasSubstr("unknown key 'epochs' in schedule"), HasSubstr("unknown key 'gamma' in schedule")));
  EXPECT_THAT(with("{type: constant, last: 0.5}"), HasSubstr("unknown key 'last' in schedule"));
  for (const char* fine : {"{type: step, epochs: [1]}", "{type: exponential, gamma: 0.5}", "{type: cosine, last: 0.1}",
                           "{type: exponential}", "{type: constant}"}) {
    EXPECT_EQ(with(fine), "") << fine;
  }
}

}  // namespace
}  // namespace weft::experiment
