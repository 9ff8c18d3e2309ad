#include "weft/experiment/file/neon_layers.h"

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/file/neon_classes.h"

namespace weft::experiment {
namespace {

// Reads learning_rate, pretrain_learning_rate and momentum from lr_params or from the layer itself.
void read_rates(Fields& fields, LearningRule& rule, std::optional<double>& pretrain_rate) {
  if (const auto rate = fields.number("learning_rate", kNonNegative)) rule.rate = *rate;
  if (const auto rate = fields.number("pretrain_learning_rate", kNonNegative)) pretrain_rate = rate;
  for (const char* key : {"momentum", "momentum_params"}) {
    if (const Value* momentum = fields.mapping(key)) rule.momentum = read_momentum(*momentum, fields.problems());
  }
}

// neon 0.6 adds a bias to Layer only if weight_init contains bias_init. Its LayerDist has a bias but does not apply it.
bool has_bias(const NeonLayerType& type, const Value& layer, const NeonDefaults& model) {
  if (!type.has_bias || !model.optional_biases) return type.has_bias;
  const ValuePtr init = layer.find("weight_init");
  return !type.split && init != nullptr && init->find("bias_init") != nullptr;
}

LayerSpec read_layer(const Value& value, const NeonDefaults& model, Problems& problems) {
  LayerSpec layer;
  layer.place = value.place;
  const auto known = find_neon_layer_type(value, problems);
  if (!known) return layer;
  layer.type = known->type;
  layer.split = known->split;
  Fields fields(value, "a " + value.tag.substr(value.tag.rfind('.') + 1), problems);
  layer.name = fields.text("name").value_or("");
  NeonLayer reading{layer, has_bias(*known, value, model), model};
  std::optional<double> pretrain_rate;
  LearningRule& rule = reading.defaults.rule;
  read_rates(fields, rule, pretrain_rate);
  if (const Value* own = fields.any("learning_rule")) {
    rule = read_neon_rule(*own, rule, pretrain_rate, problems);
  } else if (!model.has_learning_rule && !known->has_bias) {
    rule.momentum = {};  // before neon had learning rules, only the class Layer used momentum
  }
  layer.rule = rule;
  reading.defaults.pretrain_rate = pretrain_rate.value_or(model.pretrain_rate);
  layer.settings = known->type->read_neon(fields, reading);
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
    numbers.accept({"backend", "weight_decay"});  // neon reads weight_decay but never applies it
    read_rates(numbers, rule, pretrain_rate);
  }
  if (!known->ends_with("Momentum")) rule.momentum = {};
  return rule;
}

std::vector<LayerSpec> read_neon_layers(const Value& list, const NeonDefaults& model, Problems& problems) {
  std::vector<LayerSpec> layers;
  for (const ValuePtr& item : layers_of(list, problems)) {
    if (problems.full()) break;
    layers.push_back(read_layer(*item, model, problems));
    if (layers.back().name.empty()) layers.back().name = "layer" + std::to_string(layers.size() - 1);
  }
  return layers;
}

}  // namespace weft::experiment
