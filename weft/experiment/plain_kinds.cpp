#include "weft/experiment/plain_kinds.h"

#include "weft/experiment/forms.h"
#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

struct NamedActivation {
  const char* name;
  Activation activation;
};
constexpr NamedActivation kActivations[] = {
    {"linear", Activation::kLinear},
    {"logistic", Activation::kLogistic},
    {"sigmoid", Activation::kLogistic},
    {"relu", Activation::kRectified},
    {"tanh", Activation::kTanh},
    {"gelu", Activation::kGelu},
    {"leaky_relu", Activation::kLeakyRectified},
    {"elu", Activation::kElu},
    {"silu", Activation::kSilu},
    {"softplus", Activation::kSoftplus},
};

void choose_activation(Fields& fields, LayerSpec& layer, Activation activation) {
  layer.activation = activation;
  if (activation == Activation::kLeakyRectified) layer.below = fields.number("slope", kNonNegative).value_or(0.01);
  if (activation == Activation::kElu) layer.below = fields.number("alpha", kNonNegative).value_or(1);
}

void read_init(Fields& fields, LayerSpec& layer) {
  if (const Value* init = fields.mapping("weight_init")) layer.init = read_weight_init(*init, fields.problems());
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
  layer.bias = fields.boolean("bias").value_or(true);
  read_activation(fields, layer, "linear");
  read_init(fields, layer);
}

void read_convolution(Fields& fields, LayerSpec& layer) {
  read_window(fields, layer, {1, 1});
  layer.dilation = pair_of(fields.sizes("dilation"), {1, 1});
  layer.groups = fields.integer("groups", kSize).value_or(1);
  if (layer.kind == LayerKind::kTransposedConvolution)
    layer.output_padding = pair_of(fields.sizes("output_padding", kCount), {0, 0});
  read_weights(fields, layer, "maps");
}

void read_linear(Fields& fields, LayerSpec& layer) { read_weights(fields, layer, "outputs"); }

void read_pool(Fields& fields, LayerSpec& layer) {
  read_window(fields, layer, {});
  if (layer.kind == LayerKind::kAveragePool) layer.counts_padding = fields.boolean("count_include_pad").value_or(true);
}

void read_norm_pool(Fields& fields, LayerSpec& layer) { read_window(fields, layer, {1, 1}); }

void read_adaptive_pool(Fields& fields, LayerSpec& layer) {
  fields.require("size");
  layer.size = pair_of(fields.sizes("size"), {1, 1});
}

void read_upsample(Fields& fields, LayerSpec& layer) {
  layer.size = pair_of(fields.sizes("size"), {});
  layer.scale = pair_of(fields.sizes("scale"), layer.size.empty() ? Sizes{1, 1} : Sizes{});
  layer.resampling = fields.choice("mode", {"nearest", "nearest-exact", "bilinear"}).value_or("nearest");
  layer.align_corners = layer.resampling == "bilinear" && fields.boolean("align_corners").value_or(false);
  if (fields.has("size") == fields.has("scale")) {
    fields.problems().add(fields.place(), std::string("expected either 'scale' or 'size' in a layer upsample, got ") +
                                              (fields.has("size") ? "both" : "none"));
  }
}

void read_contrast_norm(Fields& fields, LayerSpec& layer) { layer.kernel = pair_of(fields.sizes("kernel"), {3, 3}); }

// As torch's layers: of each image's maps alone, in instance normalisation, without weights unless they are asked for.
void read_norm(Fields& fields, LayerSpec& layer) {
  if (layer.kind == LayerKind::kGroupNorm) {
    fields.require("groups");
    layer.groups = fields.integer("groups", kSize).value_or(1);
  }
  layer.affine = fields.boolean("affine").value_or(layer.kind != LayerKind::kInstanceNorm);
  layer.epsilon = fields.number("epsilon", kNonNegative).value_or(layer.epsilon);
}

void read_filter(Fields& fields, LayerSpec& layer) {
  read_window(fields, layer, {1, 1});
  fields.require("maps");
  layer.outputs = fields.integer("maps", kSize).value_or(1);
  read_init(fields, layer);
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
  read_activation(fields, layer, "relu");
  layer.bias = true;
  read_init(fields, layer);
  if (const Value* parallel = fields.mapping("layer_parallel")) {
    Fields solver(*parallel, "layer_parallel", fields.problems());
    layer.parallel.levels = solver.integer("levels", {.least = 1, .most = 30}).value_or(1);
    layer.parallel.coarsening = solver.integer("coarsening", {.least = 2, .most = 1000}).value_or(4);
    layer.parallel.iterations = solver.integer("iterations", {.least = 1, .most = 1000}).value_or(2);
  }
}

void read_dropout(Fields& fields, LayerSpec& layer) { layer.probability = fields.number("p", kFraction).value_or(0.5); }

std::vector<PlainKind> all_kinds() {
  const auto nothing = [](Fields& /*fields*/, LayerSpec& /*layer*/) {};
  std::vector<PlainKind> table{
      {"conv", LayerKind::kConvolution, &read_convolution, nullptr},
      {"conv_transpose", LayerKind::kTransposedConvolution, &read_convolution, nullptr},
      {"linear", LayerKind::kLinear, &read_linear, "outputs"},
      {"max_pool", LayerKind::kMaxPool, &read_pool, "kernel"},
      {"average_pool", LayerKind::kAveragePool, &read_pool, "kernel"},
      {"l2_pool", LayerKind::kNormPool, &read_norm_pool, "kernel"},
      {"adaptive_average_pool", LayerKind::kAdaptiveAveragePool, &read_adaptive_pool, "size"},
      {"adaptive_max_pool", LayerKind::kAdaptiveMaxPool, &read_adaptive_pool, "size"},
      {"global_average_pool", LayerKind::kGlobalAverage, nothing, nullptr},
      {"upsample", LayerKind::kUpsample, &read_upsample, "scale"},
      {"flatten", LayerKind::kFlatten, nothing, nullptr},
      {"contrast_norm", LayerKind::kContrastNorm, &read_contrast_norm, "kernel"},
      {"batch_norm", LayerKind::kBatchNorm, nothing, nullptr},
      {"group_norm", LayerKind::kGroupNorm, &read_norm, "groups"},
      {"instance_norm", LayerKind::kInstanceNorm, &read_norm, nullptr},
      {"layer_norm", LayerKind::kLayerNorm, &read_norm, nullptr},
      {"local_filter", LayerKind::kLocalFilter, &read_filter, nullptr},
      {"dropout", LayerKind::kDropout, &read_dropout, "p"},
      {"residual_stack", LayerKind::kResidualStack, &read_stack, "depth"},
      // The layers in it are read by who reads lists of them.
      {"residual", LayerKind::kResidualBlock, nothing, "layers"},
  };
  for (const auto& [name, activation] : kActivations) {
    if (activation == Activation::kLinear) continue;
    const char* const setting = activation == Activation::kLeakyRectified ? "slope"
                                : activation == Activation::kElu          ? "alpha"
                                                                          : nullptr;
    const auto read = [activation](Fields& fields, LayerSpec& layer) { choose_activation(fields, layer, activation); };
    table.push_back({name, LayerKind::kActivation, read, setting});
  }
  return table;
}

}  // namespace

void read_activation(Fields& fields, LayerSpec& layer, const char* otherwise) {
  std::vector<std::string> names;
  for (const NamedActivation& known : kActivations) names.emplace_back(known.name);
  const std::string chosen = fields.choice("activation", names).value_or(otherwise);
  for (const auto& [name, activation] : kActivations) {
    if (name == chosen) choose_activation(fields, layer, activation);
  }
}

const PlainKind* plain_kind(const std::string& name, const Place& place, Problems& problems) {
  static const std::vector<PlainKind> kinds = all_kinds();
  std::vector<std::string> known;
  for (const PlainKind& kind : kinds) {
    if (kind.name == name) return &kind;
    known.emplace_back(kind.name);
  }
  const auto meant = text::nearest(name, known);
  problems.add(place, "expected a kind of layer, got '" + name + "'; " +
                          (meant ? "did you mean '" + *meant + "'?" : "known are " + text::listed(known)));
  return nullptr;
}

}  // namespace weft::experiment
