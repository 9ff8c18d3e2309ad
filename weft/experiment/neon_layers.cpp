#include "weft/experiment/neon_layers.h"

#include "weft/experiment/forms.h"
#include "weft/experiment/neon_classes.h"

namespace weft::experiment {
namespace {

// lr_params {learning_rate, pretrain_learning_rate, momentum_params}, or the numbers beside the layer's other keys.
void read_rates(Fields& fields, LearningRule& rule, std::optional<double>& pretrain_rate) {
  if (const auto rate = fields.number("learning_rate", kNonNegative)) rule.rate = *rate;
  if (const auto rate = fields.number("pretrain_learning_rate", kNonNegative)) pretrain_rate = rate;
  for (const char* key : {"momentum", "momentum_params"}) {
    if (const Value* momentum = fields.mapping(key)) rule.momentum = read_momentum(*momentum, fields.problems());
  }
}

void read_layer_sizes(Fields& fields, LayerSpec& layer, bool has_bias) {
  const bool windowed = layer.kind != LayerKind::kLinear;
  if (windowed) {
    fields.require("fshape");
    layer.declared_maps = fields.integer("nifm", kSize);
    layer.declared_shape = fields.sizes("ifmshape");
    layer.kernel = pair_of(fields.sizes("fshape"), {1, 1});
    layer.stride = pair_of(fields.sizes("stride"), {1, 1});
    layer.padding = pair_of(fields.sizes("pad", kCount), {0, 0});
  } else {
    fields.require("nout");
    layer.declared_inputs = fields.integer("nin", kSize);
    layer.counts_bias = has_bias;
    layer.outputs = fields.integer("nout", kSize).value_or(1);
  }
  const bool filters = layer.kind == LayerKind::kConvolution || layer.kind == LayerKind::kLocalFilter;
  if (filters) fields.require("nofm");
  const auto maps = fields.integer("nofm", kSize);
  if (filters) layer.outputs = maps.value_or(1);
}

// Without bias_init neon draws biases, a column of the weights, as it draws the others.
void read_weights(Fields& fields, LayerSpec& layer, bool has_bias) {
  layer.bias = has_bias;
  const Value* const init = fields.mapping("weight_init");
  if (init == nullptr) return;
  layer.init = read_weight_init(*init, fields.problems());
  layer.init.draws_bias = init->find("bias_init") == nullptr;
}

void read_pretraining(Fields& fields, LayerSpec& layer) {
  layer.pretraining = fields.boolean("pretraining").value_or(false);
  layer.sparsity = fields.number("sparsity", kNonNegative).value_or(0);
  layer.tied_weights = fields.boolean("tied_weights").value_or(false);
}

LayerSpec read_layer(const Value& value, const LearningRule& model_rule, double model_pretrain_rate,
                     Problems& problems) {
  LayerSpec layer;
  layer.place = value.place;
  const auto known = neon_layer_class(value, problems);
  if (!known) return layer;
  layer.kind = known->kind;
  layer.split = known->split;
  Fields fields(value, "a " + value.tag.substr(value.tag.rfind('.') + 1), problems);
  layer.name = fields.text("name").value_or("");
  read_layer_sizes(fields, layer, known->has_bias);
  LearningRule rule = model_rule;
  std::optional<double> pretrain_rate;
  read_rates(fields, rule, pretrain_rate);
  if (const Value* own = fields.any("learning_rule")) rule = read_neon_rule(*own, rule, pretrain_rate, problems);
  layer.rule = rule;
  layer.pretrain_rate = pretrain_rate.value_or(model_pretrain_rate);
  if (layer.kind == LayerKind::kLocalFilter) read_pretraining(fields, layer);
  if (layer.kind == LayerKind::kLinear || layer.kind == LayerKind::kConvolution) {
    if (const Value* activation = fields.any("activation")) {
      layer.activation = neon_activation(*activation, problems).value_or(Activation::kLinear);
    }
  }
  const bool weights = layer.kind == LayerKind::kLinear || layer.kind == LayerKind::kConvolution ||
                       layer.kind == LayerKind::kLocalFilter;
  if (weights) read_weights(fields, layer, known->has_bias);
  fields.accept({"backend", "batch_size", "pos", "dist_mode"});
  fields.accept_ending("_dtype");
  return layer;
}

}  // namespace

LearningRule read_neon_rule(const Value& value, LearningRule rule, std::optional<double>& pretrain_rate,
                            Problems& problems) {
  const auto known =
      neon_class(value, "a learning rule",
                 {"neon.models.learning_rule.GradientDescent", "neon.models.learning_rule.GradientDescentMomentum",
                  "neon.models.learning_rule.GradientDescentPretrain"},
                 problems);
  if (!known) return rule;
  Fields fields(value, "a learning rule", problems);
  fields.accept({"name", "backend"});
  fields.accept_ending("_dtype");
  fields.require("lr_params");
  if (const Value* params = fields.mapping("lr_params")) {
    Fields numbers(*params, "lr_params", problems);
    numbers.accept({"backend", "weight_decay"});  // which neon reads and never applies
    read_rates(numbers, rule, pretrain_rate);
  }
  if (!known->ends_with("Momentum")) rule.momentum = {};
  return rule;
}

std::vector<LayerSpec> read_neon_layers(const Value& list, const LearningRule& rule, double pretrain_rate,
                                        Problems& problems) {
  std::vector<LayerSpec> layers;
  for (const ValuePtr& item : layers_of(list, problems)) {
    if (problems.full()) break;
    layers.push_back(read_layer(*item, rule, pretrain_rate, problems));
    if (layers.back().name.empty()) layers.back().name = "layer" + std::to_string(layers.size() - 1);
  }
  return layers;
}

}  // namespace weft::experiment
