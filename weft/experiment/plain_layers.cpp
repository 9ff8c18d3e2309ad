#include "weft/experiment/plain_layers.h"

#include <algorithm>
#include <functional>

#include "weft/experiment/forms.h"
#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

const std::vector<std::string> kActivations{"linear", "logistic", "relu", "tanh"};

Activation activation_of(const std::string& name) {
  if (name == "logistic") return Activation::kLogistic;
  if (name == "relu") return Activation::kRectified;
  if (name == "tanh") return Activation::kTanh;
  return Activation::kLinear;
}

void read_window(Fields& fields, LayerSpec& layer, const Sizes& stride) {
  fields.require("kernel");
  layer.kernel = pair_of(fields.sizes("kernel"), {1, 1});
  layer.stride = pair_of(fields.sizes("stride"), stride.empty() ? layer.kernel : stride);
  layer.padding = pair_of(fields.sizes("padding", kCount), {0, 0});
}

void read_weights(Fields& fields, LayerSpec& layer, const char* outputs) {
  fields.require(outputs);
  layer.outputs = fields.integer(outputs, kSize).value_or(1);
  layer.bias = fields.boolean("bias").value_or(layer.kind != LayerKind::kLocalFilter);
  layer.activation = activation_of(fields.choice("activation", kActivations).value_or("linear"));
  if (const Value* init = fields.mapping("weight_init")) layer.init = read_weight_init(*init, fields.problems());
}

void read_filter(Fields& fields, LayerSpec& layer) {
  read_window(fields, layer, {1, 1});
  fields.require("maps");
  layer.outputs = fields.integer("maps", kSize).value_or(1);
  if (const Value* init = fields.mapping("weight_init")) layer.init = read_weight_init(*init, fields.problems());
  layer.pretraining = fields.boolean("pretraining").value_or(true);
  layer.sparsity = fields.number("sparsity", kNonNegative).value_or(0);
  layer.tied_weights = fields.boolean("tied_weights").value_or(false);
  layer.pretrain_rate = fields.number("pretrain_rate", kNonNegative).value_or(0.01);
}

void read_stack(Fields& fields, LayerSpec& layer) {
  fields.require("depth");
  layer.depth = fields.integer("depth", {.least = 1, .most = 100'000}).value_or(1);
  layer.kernel = pair_of(fields.sizes("kernel"), {3, 3});
  layer.time = fields.number("time", kNonNegative).value_or(1);
  layer.activation = activation_of(fields.choice("activation", kActivations).value_or("relu"));
  layer.bias = true;
  if (const Value* init = fields.mapping("weight_init")) layer.init = read_weight_init(*init, fields.problems());
  if (const Value* parallel = fields.mapping("layer_parallel")) {
    Fields solver(*parallel, "layer_parallel", fields.problems());
    layer.parallel.levels = solver.integer("levels", {.least = 1, .most = 30}).value_or(1);
    layer.parallel.coarsening = solver.integer("coarsening", {.least = 2, .most = 1000}).value_or(4);
    layer.parallel.iterations = solver.integer("iterations", {.least = 1, .most = 1000}).value_or(2);
  }
}

struct PlainKind {
  const char* name;
  LayerKind kind;
  std::function<void(Fields&, LayerSpec&)> read;
  // `- max_pool: 2` stands for this key with that value.
  const char* short_key;
};

const std::vector<PlainKind>& kinds() {
  const auto pool = [](Fields& fields, LayerSpec& layer) { read_window(fields, layer, {}); };
  const auto nothing = [](Fields& /*fields*/, LayerSpec& /*layer*/) {};
  static const std::vector<PlainKind> table{
      {"conv", LayerKind::kConvolution,
       [](Fields& fields, LayerSpec& layer) {
         read_window(fields, layer, {1, 1});
         read_weights(fields, layer, "maps");
       },
       nullptr},
      {"linear", LayerKind::kLinear, [](Fields& fields, LayerSpec& layer) { read_weights(fields, layer, "outputs"); },
       "outputs"},
      {"max_pool", LayerKind::kMaxPool, pool, "kernel"},
      {"average_pool", LayerKind::kAveragePool, pool, "kernel"},
      {"l2_pool", LayerKind::kNormPool, [](Fields& fields, LayerSpec& layer) { read_window(fields, layer, {1, 1}); },
       "kernel"},
      {"contrast_norm", LayerKind::kContrastNorm,
       [](Fields& fields, LayerSpec& layer) { layer.kernel = pair_of(fields.sizes("kernel"), {3, 3}); }, "kernel"},
      {"local_filter", LayerKind::kLocalFilter, &read_filter, nullptr},
      {"batch_norm", LayerKind::kBatchNorm, nothing, nullptr},
      {"dropout", LayerKind::kDropout,
       [](Fields& fields, LayerSpec& layer) { layer.probability = fields.number("p", kFraction).value_or(0.5); }, "p"},
      {"relu", LayerKind::kActivation, [](Fields&, LayerSpec& l) { l.activation = Activation::kRectified; }, nullptr},
      {"tanh", LayerKind::kActivation, [](Fields&, LayerSpec& l) { l.activation = Activation::kTanh; }, nullptr},
      {"logistic", LayerKind::kActivation, [](Fields&, LayerSpec& l) { l.activation = Activation::kLogistic; },
       nullptr},
      {"global_average_pool", LayerKind::kGlobalAverage, nothing, nullptr},
      {"residual_stack", LayerKind::kResidualStack, &read_stack, "depth"},
  };
  return table;
}

const PlainKind* kind_named(const std::string& name, const Place& place, Problems& problems) {
  std::vector<std::string> known;
  for (const PlainKind& kind : kinds()) {
    if (kind.name == name) return &kind;
    known.emplace_back(kind.name);
  }
  const auto meant = text::nearest(name, known);
  problems.add(place, "expected a kind of layer, got '" + name + "'; " +
                          (meant ? "did you mean '" + *meant + "'?" : "known are " + text::listed(known)));
  return nullptr;
}

// `kernel: 2` written out, for `max_pool: 2`.
Value spelled_out(const Value& given, const PlainKind& kind) {
  const bool short_form = given.kind == Value::Kind::kScalar || given.kind == Value::Kind::kSequence;
  if (!short_form || kind.short_key == nullptr) return given;
  Value mapping;
  mapping.kind = Value::Kind::kMapping;
  mapping.place = given.place;
  mapping.entries.push_back({kind.short_key, given.place, std::make_shared<Value>(given)});
  return mapping;
}

LayerSpec read_layer(const Value& item, Problems& problems) {
  LayerSpec layer;
  layer.place = item.place;
  // A word alone, or one key with its settings.
  const bool word = item.kind == Value::Kind::kScalar;
  if (!word && item.entries.size() != 1) {
    problems.add(item.place, "expected a layer as 'kind: {settings}', got " + item.describe());
    return layer;
  }
  const PlainKind* const kind = kind_named(word ? item.text : item.entries[0].key, item.place, problems);
  if (kind == nullptr) return layer;
  layer.kind = kind->kind;
  const Value settings = word ? Value{} : spelled_out(*item.entries[0].value, *kind);
  Fields fields(settings, std::string("a layer ") + kind->name, problems);
  layer.name = fields.text("name").value_or("");
  kind->read(fields, layer);
  return layer;
}

RateSchedule read_rate_schedule(const Value& value, Problems& problems) {
  Fields fields(value, "schedule", problems);
  RateSchedule schedule;
  const auto type = fields.choice("type", {"constant", "step", "exponential", "cosine"}).value_or("constant");
  schedule.gamma = fields.number("gamma", kNonNegative).value_or(type == "constant" ? 1 : 0.1);
  schedule.last = fields.number("last", kFraction).value_or(0);
  if (const Value* steps = fields.list("epochs")) {
    for (const ValuePtr& step : steps->items) {
      if (const auto number = as_integer(*step)) {
        schedule.steps.push_back(*number);
      } else {
        problems.add(step->place, "expected an epoch's number, got " + step->describe());
      }
    }
  }
  if (type == "step") schedule.kind = RateSchedule::Kind::kStep;
  if (type == "exponential") schedule.kind = RateSchedule::Kind::kExponential;
  if (type == "cosine") schedule.kind = RateSchedule::Kind::kCosine;
  return schedule;
}

void read_momentum_key(Fields& fields, LearningRule& rule) {
  const Value* const momentum = fields.any("momentum");
  if (momentum == nullptr) return;
  if (momentum->kind == Value::Kind::kMapping) {
    rule.momentum = read_momentum(*momentum, fields.problems());
  } else {
    const double constant = fields.number("momentum", kFraction).value_or(0);
    rule.momentum = {.initial = constant, .saturated = constant};
  }
}

}  // namespace

LearningRule read_optimizer(const Value& value, Problems& problems) {
  Fields fields(value, "optimizer", problems);
  LearningRule rule;
  const auto type = fields.choice("type", {"sgd", "adam", "adamw"}).value_or("sgd");
  fields.require("rate");
  rule.rate = fields.number("rate", kNonNegative).value_or(rule.rate);
  rule.weight_decay = fields.number("weight_decay", kNonNegative).value_or(0);
  if (const Value* schedule = fields.mapping("schedule")) rule.schedule = read_rate_schedule(*schedule, problems);
  if (type == "sgd") {
    read_momentum_key(fields, rule);
    return rule;
  }
  rule.kind = type == "adam" ? LearningRule::Kind::kAdam : LearningRule::Kind::kAdamW;
  rule.beta1 = fields.number("beta1", kDecay).value_or(rule.beta1);
  rule.beta2 = fields.number("beta2", kDecay).value_or(rule.beta2);
  rule.epsilon = fields.number("epsilon", kNonNegative).value_or(rule.epsilon);
  return rule;
}

std::vector<LayerSpec> read_plain_layers(const Value& list, Problems& problems) {
  std::vector<LayerSpec> layers;
  for (const ValuePtr& item : layers_of(list, problems)) {
    if (problems.full()) break;
    layers.push_back(read_layer(*item, problems));
    if (layers.back().name.empty()) layers.back().name = "layer" + std::to_string(layers.size() - 1);
  }
  return layers;
}

}  // namespace weft::experiment
