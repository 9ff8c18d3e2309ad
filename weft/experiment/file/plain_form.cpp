#include <algorithm>

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/plain_layers.h"

namespace weft::experiment {
namespace {

void read_data(const Value& value, DatasetSpec& data, Problems& problems) {
  data.place = value.place;
  Fields fields(value, "data", problems);
  fields.require("set");
  data.kind = fields.choice("set", {"mnist", "cifar10", "toy_images", "blobs", "shapes"}).value_or("mnist");
  data.folder = fields.text("folder").value_or("");
  data.sample = fields.number("sample", kShare).value_or(1);
  data.cache = fields.text("cache").value_or("");
  data.test_images = fields.integer("test_images", kSize);
  data.shuffle = fields.boolean("shuffle").value_or(true);
  data.prefetch = fields.integer("prefetch", {.least = 0, .most = 1000}).value_or(data.prefetch);
  if (data.made_up()) {
    data.images = fields.integer("images", kSize).value_or(data.images);
    data.shape = pair_of(fields.sizes("shape"), data.shape);
    data.maps = fields.integer("maps", kSize).value_or(data.maps);
    const std::int64_t most = data.kind == "toy_images" ? 2 : data.kind == "shapes" ? 6 : 1000;
    data.classes = fields.integer("classes", {.least = 2, .most = most}).value_or(std::min(most, data.classes));
  }
}

void read_split(const Value& value, SplitSpec& split, Problems& problems) {
  if (value.kind == Value::Kind::kScalar) {  // `split: batch`
    if (value.text == "none") split.mode = SplitSpec::Mode::kNone;
    if (value.text == "batch") split.mode = SplitSpec::Mode::kBatch;
    if (value.text != "none" && value.text != "batch" && value.text != "tiles") {
      problems.add(value.place, "'split' must be tiles, batch, none or a mapping, got " + value.describe());
    }
    return;
  }
  Fields fields(value, "split", problems);
  const auto mode = fields.choice("mode", {"tiles", "batch", "none"}).value_or("tiles");
  if (mode == "batch") split.mode = SplitSpec::Mode::kBatch;
  if (mode == "none") split.mode = SplitSpec::Mode::kNone;
  if (const auto grid = fields.sizes("grid")) {
    if (grid->size() == 2) {
      split.grid = grid;
    } else {
      problems.add(fields.place_of("grid"), "'grid' must be two numbers: rows and columns of tiles");
    }
  }
  if (split.grid && split.mode != SplitSpec::Mode::kTiles) {
    problems.add(fields.place_of("grid"), "'grid' requires mode: tiles, got mode: " + mode);
  }
  split.batch_parts = fields.integer("batch_parts", kSize).value_or(1);
  split.strict_neon = fields.boolean("strict_neon").value_or(false);
}

Cost cost_named(const std::string& name) {
  if (name == "softmax_cross_entropy") return Cost::kSoftmaxCrossEntropy;
  return name == "sum_squared" ? Cost::kSumSquared : Cost::kBinaryCrossEntropy;
}

void read_model(const Value& value, ModelSpec& model, Problems& problems) {
  model.place = value.place;
  Fields fields(value, "model", problems);
  fields.require("layers");
  model.name = "network";
  model.epochs = fields.integer("epochs", kCount).value_or(1);
  model.batch_size = fields.integer("batch_size", kSize).value_or(100);
  model.cost = cost_named(fields.choice("cost", {"softmax_cross_entropy", "cross_entropy", "sum_squared"})
                              .value_or("softmax_cross_entropy"));
  if (const Value* optimizer = fields.mapping("optimizer")) model.rule = read_optimizer(*optimizer, problems);
  if (const Value* pretrain = fields.mapping("pretrain")) {
    Fields keys(*pretrain, "pretrain", problems);
    model.pretraining.wanted = true;
    model.pretraining.epochs = keys.integer("epochs", kCount).value_or(1);
    model.pretraining.initial_epochs = keys.integer("initial_epochs", kCount).value_or(0);
    model.pretraining.spot_check = keys.boolean("spot_check").value_or(false);
    model.pretraining.visualize = keys.boolean("visualize").value_or(false);
  }
  if (const Value* metrics = fields.list("metrics")) model.metrics = read_metrics(*metrics, problems);
  if (const Value* layers = fields.list("layers")) model.layers = read_plain_layers(*layers, problems);
}

}  // namespace

Experiment read_plain_form(const Value& root, Problems& problems) {
  Experiment experiment;
  experiment.place = root.place;
  Fields fields(root, "the experiment", problems);
  experiment.name = fields.text("name").value_or("");
  experiment.seed = static_cast<std::uint64_t>(fields.integer("seed", kSeed).value_or(0));
  experiment.float64 = fields.choice("dtype", {"float32", "float64"}).value_or("float32") == "float64";
  experiment.predict = fields.boolean("evaluate").value_or(true);
  experiment.checkpoint_steps = fields.integer("checkpoint_every", kCount).value_or(0);
  fields.require("data");
  if (const Value* data = fields.mapping("data")) read_data(*data, experiment.dataset, problems);
  if (const Value* split = fields.any("split")) read_split(*split, experiment.split, problems);
  fields.require("model");
  if (const Value* model = fields.mapping("model")) read_model(*model, experiment.model, problems);
  return experiment;
}

}  // namespace weft::experiment
