#include "weft/experiment/layers/activation.h"

#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>

#include <algorithm>

#include "weft/experiment/file/neon_classes.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

struct NamedActivation {
  const char* name;
  Activation::Kind kind;
  at::Tensor (*apply)(const at::Tensor& x, double below);
  const char* setting = "";  // key of Activation::below
  double otherwise = 0;
};
constexpr NamedActivation kActivations[] = {
    {"linear", Activation::kLinear, [](const at::Tensor& x, double) { return x; }},
    {"logistic", Activation::kLogistic, [](const at::Tensor& x, double) { return at::sigmoid(x); }},
    {"sigmoid", Activation::kLogistic, [](const at::Tensor& x, double) { return at::sigmoid(x); }},
    {"relu", Activation::kRectified, [](const at::Tensor& x, double) { return at::relu(x); }},
    {"tanh", Activation::kTanh, [](const at::Tensor& x, double) { return at::tanh(x); }},
    {"gelu", Activation::kGelu, [](const at::Tensor& x, double) { return at::gelu(x); }},
    {"leaky_relu", Activation::kLeakyRectified,
     [](const at::Tensor& x, double below) { return at::leaky_relu(x, below); }, "slope", 0.01},
    {"elu", Activation::kElu, [](const at::Tensor& x, double below) { return at::elu(x, below); }, "alpha", 1},
    {"silu", Activation::kSilu, [](const at::Tensor& x, double) { return at::silu(x); }},
    {"softplus", Activation::kSoftplus, [](const at::Tensor& x, double) { return at::softplus(x); }},
};

Activation read_setting(Fields& fields, const NamedActivation& named) {
  if (*named.setting == '\0') return {named.kind};
  return {named.kind, fields.number(named.setting, kNonNegative).value_or(named.otherwise)};
}

spatial::nn::LayerPtr activation_layer(const Activation& activation) {
  return spatial::nn::elementwise([activation](const at::Tensor& x) { return activated(x, activation); });
}

class ActivationSettings final : public LayerSettings {
 public:
  explicit ActivationSettings(const Activation& activation) : activation_(activation) {}

  [[nodiscard]] Activation activation() const override { return activation_; }
  bool remove_logistic() override { return experiment::remove_logistic(activation_); }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return {activation_layer(activation_), context.inputs};
  }

 private:
  Activation activation_;
};

// `linear` is a layer type of its own, so only the other activations are layers.
const bool kActivationRegistered = [] {
  for (const NamedActivation& named : kActivations) {
    if (named.kind == Activation::kLinear) continue;
    register_layer_type({.name = named.name,
                         .read =
                             [named](Fields& fields, LayerListReader&) {
                               return std::make_shared<ActivationSettings>(read_setting(fields, named));
                             },
                         .short_key = named.setting});
  }
  return true;
}();

}  // namespace

at::Tensor activated(const at::Tensor& x, const Activation& activation) {
  const auto* const named = std::find_if(std::begin(kActivations), std::end(kActivations),
                                         [&](const NamedActivation& known) { return known.kind == activation.kind; });
  return named->apply(x, activation.below);
}

spatial::nn::LayerPtr with_activation(spatial::nn::LayerPtr layer, const Activation& activation) {
  if (activation.kind == Activation::kLinear) return layer;
  return std::make_shared<spatial::nn::Sequential>(std::vector{std::move(layer), activation_layer(activation)});
}

bool remove_logistic(Activation& activation) {
  if (activation.kind != Activation::kLogistic) return false;
  activation = {};
  return true;
}

Activation read_activation(Fields& fields, const std::string& otherwise) {
  std::vector<std::string> names;
  for (const NamedActivation& known : kActivations) names.emplace_back(known.name);
  const std::string chosen = fields.choice("activation", names).value_or(otherwise);
  for (const NamedActivation& named : kActivations) {
    if (named.name == chosen) return read_setting(fields, named);
  }
  return {};
}

Activation read_neon_activation(Fields& fields) {
  static const std::map<std::string, Activation::Kind> table{
      {"neon.transforms.logistic.Logistic", Activation::kLogistic},
      {"neon.transforms.rectified.RectLin", Activation::kRectified},
      {"neon.transforms.tanh.Tanh", Activation::kTanh},
      {"neon.transforms.linear.Linear", Activation::kLinear},
      {"neon.transforms.linear.Identity", Activation::kLinear}};
  const Value* const value = fields.any("activation");
  if (value == nullptr) return {};
  Fields keys(*value, "an activation", fields.problems());
  keys.accept({"use_binary", "shortcut_deriv"});  // neon stores them but reads only those of the cost
  return {neon_lookup(*value, "an activation", table, fields.problems()).value_or(Activation::kLinear)};
}

}  // namespace weft::experiment
