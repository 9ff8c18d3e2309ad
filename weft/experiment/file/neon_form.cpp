#include <map>

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/neon_classes.h"
#include "weft/experiment/file/neon_layers.h"

namespace weft::experiment {
namespace {

const std::vector<std::string> kModes{"halopar", "vecpar", "datapar", "modelpar", "halodatapar"};

// Several objects may set dist_mode; the last one wins. datapar splits batches; the other modes split images or
// vectors.
void read_mode(Fields& fields, SplitSpec& split) {
  const auto mode = fields.choice("dist_mode", kModes);
  if (!mode) return;
  split.mode = *mode == "datapar" ? SplitSpec::Mode::kBatch : SplitSpec::Mode::kTiles;
  if (*mode == "halodatapar") split.batch_parts = 2;
}

// Reads `float32`, `np.float32`, or Python's tag. neon's default is float32. weft's is float64, since the curves of
// networks with max pooling depend on the rank count in float32 (docs/experiments.md).
bool wants_float64(Fields& fields) {
  const Value* type = fields.any("default_dtype");
  if (type == nullptr) return true;
  const std::string name = type->tag + " " + type->text;
  const bool single = name.find("float32") != std::string::npos;
  if (!single && name.find("float64") == std::string::npos) {
    fields.problems().add(type->place, "'default_dtype' must be float32 or float64, got " + type->describe());
  }
  return !single;
}

void read_backend(const Value& value, Experiment& experiment, Problems& problems) {
  static const std::map<std::string, bool> on_gpu{{"neon.backends._numpy.Numpy", false},
                                                  {"neon.backends._numpy.Numpy64", false},
                                                  {"neon.backends.numpy.Numpy", false},
                                                  {"neon.backends.cpu.CPU", false},
                                                  {"neon.backends.cpu.CPUDist", false},
                                                  {"neon.backends.cpu.CPUDataDist", false},
                                                  {"neon.backends.gpu.GPU", true},
                                                  {"neon.backends.gpu.GPUDataDist", true},
                                                  {"neon.backends._cudanet.Cudanet", true},
                                                  {"neon.backends._cudamat.Cudamat", true},
                                                  {"neon.backends.unpadded.UnpaddedCPU", false}};
  if (neon_lookup(value, "a backend", on_gpu, problems).value_or(false)) {
    problems.note(value.place, value.tag.substr(value.tag.rfind('.') + 1) + " runs on the CPU");
  }
  Fields fields(value, "a backend", problems);
  experiment.seed = static_cast<std::uint64_t>(fields.integer("rng_seed", kSeed).value_or(0));
  experiment.float64 = wants_float64(fields);
  read_mode(fields, experiment.split);
  fields.accept({"num_dev", "num_procs"});
  fields.ignore({"seterr_handling"});
  fields.accept_ending("_dtype");
}

// The defaults are neon's.
void read_toy_images(Fields& fields, DatasetSpec& dataset) {
  dataset.images = fields.integer("num_examples", kSize).value_or(128);
  dataset.test_images = dataset.test_images.value_or(128);
  dataset.maps = fields.integer("nifm", kSize).value_or(3);
  dataset.shape = pair_of(fields.sizes("ifmshape"), {32, 32});
  dataset.classes = fields.integer("num_classes", {.least = 2, .most = 2}).value_or(2);
}

void read_dataset(const Value& value, Experiment& experiment, Problems& problems) {
  const auto known = neon_class(
      value, "a data set",
      {"neon.datasets.mnist.MNIST", "neon.datasets.cifar10.CIFAR10", "neon.datasets.synthetic.ToyImages"}, problems);
  if (!known) return;
  DatasetSpec& dataset = experiment.dataset;
  dataset.place = value.place;
  if (known->ends_with("CIFAR10")) dataset.kind = "cifar10";
  if (known->ends_with("ToyImages")) dataset.kind = "toy_images";
  Fields fields(value, "a data set", problems);
  dataset.split = fields.boolean("dist_flag").value_or(false);
  read_mode(fields, experiment.split);
  dataset.folder = fields.text("repo_path").value_or("");
  dataset.folder_may_be_absent = true;
  dataset.sample = fraction_of_sample(fields.number("sample_pct", {.least = 1e-7, .most = 100}).value_or(100));
  dataset.cache = fields.text("serialized_path").value_or("");
  dataset.test_images = fields.integer("num_test_sample", kSize);
  dataset.shuffle = fields.boolean("shuffle").value_or(dataset.shuffle);  // a key of weft; neon never shuffles
  if (dataset.kind == "toy_images") read_toy_images(fields, dataset);
  dataset.batch_size = fields.integer("batch_size", kSize);
  fields.accept({"backend", "raw_base_url", "num_procs"});
  fields.accept_ending("_dtype");
}

void read_gb_keys(Fields& fields, Pretraining& pretraining) {
  pretraining.wanted = fields.boolean("pretraining").value_or(false);
  pretraining.epochs = fields.integer("num_pretrain_epochs", kCount).value_or(0);
  pretraining.initial_epochs = fields.integer("num_initial_epochs", kCount).value_or(0);
  pretraining.spot_check = fields.boolean("spot_check").value_or(false);
  pretraining.visualize = fields.boolean("visualize").value_or(false);
  const Value* const cost = fields.any("pretrain_cost");
  if (cost != nullptr && neon_cost(*cost, fields.problems()).value_or(Cost::kSumSquared) != Cost::kSumSquared) {
    fields.problems().add(cost->place, "pretrain_cost must be SumSquaredDiffs: reconstructions have no classes");
  }
}

void read_model(const Value& value, bool optional_biases, Experiment& experiment, Problems& problems) {
  ModelSpec& model = experiment.model;
  model.place = value.place;
  const auto name = neon_model(value, problems);
  if (!name) return;
  model.split = name->ends_with("Dist");
  model.name = model.split ? name->substr(0, name->size() - 4) : *name;
  Fields fields(value, "a model", problems);
  for (const char* needed : {"num_epochs", "batch_size", "cost", "layers"}) fields.require(needed);
  model.epochs = fields.integer("num_epochs", kCount).value_or(1);
  model.batch_size = fields.integer("batch_size", kSize).value_or(1);
  model.rule.rate = fields.number("learning_rate", kNonNegative).value_or(model.rule.rate);
  if (const Value* momentum = fields.mapping("momentum")) {
    model.rule.momentum = read_momentum(*momentum, problems);
    model.rule.momentum.reversed = true;  // neon's versions with learning rules ignore this key
  }
  std::optional<double> pretrain_rate = fields.number("pretrain_learning_rate", kNonNegative);
  const Value* const rule = fields.any("learning_rule");
  if (rule != nullptr) model.rule = read_neon_rule(*rule, model.rule, pretrain_rate, problems);
  if (const Value* cost = fields.any("cost")) {
    model.cost = neon_cost(*cost, problems).value_or(model.cost);
    const ValuePtr shortcut = cost->find("shortcut_deriv");
    model.neon_derivative = shortcut != nullptr && !as_boolean(*shortcut).value_or(true);
  }
  if (model.name == "GB") read_gb_keys(fields, model.pretraining);
  const bool tied = model.name == "GB" && fields.boolean("tied_weights").value_or(false);
  const double sparsity = model.name == "GB" ? fields.number("sparsity", kNonNegative).value_or(0) : 0;
  if (const Value* layers = fields.list("layers")) {
    const NeonDefaults defaults{.rule = model.rule,
                                .has_learning_rule = rule != nullptr,
                                .optional_biases = optional_biases,
                                .pretrain_rate = pretrain_rate.value_or(model.rule.rate),
                                .sparsity = sparsity,
                                .tied_weights = tied};
    model.layers = read_neon_layers(*layers, defaults, problems);
  }
  read_mode(fields, experiment.split);
  const bool in_batches = experiment.split.mode == SplitSpec::Mode::kBatch;
  if (in_batches) model.batch_size = experiment.dataset.batch_size.value_or(model.batch_size);
  fields.accept({"backend", "dist_flag"});
  fields.ignore({"serialized_path"});  // of the pickled model
  fields.accept_ending("_dtype");
}

// neon 0.6 replaced the list `datasets` by `dataset`.
void read_datasets(Fields& fields, Experiment& experiment) {
  if (const Value* const single = fields.any("dataset")) return read_dataset(*single, experiment, fields.problems());
  fields.require("datasets");
  const Value* const list = fields.list("datasets");
  if (list == nullptr) return;
  if (list->items.size() != 1) {
    fields.problems().add(list->place,
                          "'datasets' must have exactly one item, got " + std::to_string(list->items.size()));
  }
  if (!list->items.empty()) read_dataset(*list->items.front(), experiment, fields.problems());
}

}  // namespace

Experiment read_neon_form(const Value& root, Problems& problems) {
  Experiment experiment;
  experiment.place = root.place;
  const auto known = neon_class(
      root, "an experiment",
      {"neon.experiments.fit_predict_err.FitPredictErrorExperiment", "neon.experiments.fit.FitExperiment"}, problems);
  if (!known) return experiment;
  experiment.predict = known->ends_with("FitPredictErrorExperiment");
  Fields fields(root, "the experiment", problems);
  const bool dist_flag = fields.boolean("dist_flag").value_or(false);
  read_mode(fields, experiment.split);
  fields.require("backend");
  if (const Value* backend = fields.any("backend")) read_backend(*backend, experiment, problems);
  read_datasets(fields, experiment);
  fields.require("model");
  if (const Value* model = fields.any("model")) read_model(*model, fields.has("dataset"), experiment, problems);
  experiment.split.strict_neon = fields.boolean("strict_neon").value_or(false);
  experiment.name = fields.text("name").value_or("");
  experiment.checkpoint_steps = fields.integer("checkpoint_every", kCount).value_or(0);
  if (const Value* logging = fields.mapping("logging")) {
    Fields lines(*logging, "logging", problems);
    lines.accept({"level", "format", "file"});
  }
  if (!dist_flag && !experiment.model.split) experiment.split.mode = SplitSpec::Mode::kNone;
  return experiment;
}

}  // namespace weft::experiment
